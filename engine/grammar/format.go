package grammar

// Parts of the formats, as regular expressions. They are within what validators
// accept: dates have no 29 February, since only a calendar knows the leap years, and
// times no leap second.
const (
	dateText  = `\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))`
	timeText  = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	labelText = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
	// Four labels are at most 131 characters of the 253 a host name may have.
	hostText = labelText + `(?:\.` + labelText + `){0,3}`
	atomText = `[A-Za-z0-9_+-]{1,20}`
	byteText = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Text = byteText + `(?:\.` + byteText + `){3}`
	wordText = `[0-9A-Fa-f]{1,4}`
	// Eight words, or fewer with one gap before, between or after them.
	ipv6Text = `(?:(?:` + wordText + `:){7}` + wordText +
		`|(?:` + wordText + `:){1,6}:` + wordText +
		`|(?:` + wordText + `:){1,5}(?::` + wordText + `){2}` +
		`|(?:` + wordText + `:){1,4}(?::` + wordText + `){3}` +
		`|(?:` + wordText + `:){1,3}(?::` + wordText + `){4}` +
		`|::(?:` + wordText + `:){0,5}` + wordText + `|(?:` + wordText + `:){1,7}:|::)`
	pathText = `(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*`
	restText = `(?:/` + pathText + `)?(?:\?` + pathText + `)?(?:#` + pathText + `)?`
)

// format returns the expression of a format, or "" if it is not known.
func format(name string) string {
	switch name {
	case "date":
		return "^" + dateText + "$"
	case "time":
		return "^" + timeText + "$"
	case "date-time":
		return "^" + dateText + "T" + timeText + "$"
	case "duration":
		return `^P(?:\d{1,4}W|(?:\d{1,4}Y(?:\d{1,4}M)?(?:\d{1,4}D)?|\d{1,4}M(?:\d{1,4}D)?|\d{1,4}D)(?:T` + clockText + `)?|T` + clockText + `)$`
	case "email":
		return "^" + atomText + `(?:\.` + atomText + `){0,2}@` + hostText + "$"
	case "hostname":
		return "^" + hostText + "$"
	case "ipv4":
		return "^" + ipv4Text + "$"
	case "ipv6":
		return "^" + ipv6Text + "$"
	case "uri", "iri":
		return `^(?:https?|ftp)://` + hostText + `(?::[1-9]\d{0,3})?` + restText + "$"
	case "uri-reference", "iri-reference":
		return "^/" + `(?:[A-Za-z0-9._~-]+/?)*` + "$"
	case "uuid":
		return "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
	}
	return ""
}

const clockText = `(?:\d{1,4}H(?:\d{1,4}M)?(?:\d{1,4}S)?|\d{1,4}M(?:\d{1,4}S)?|\d{1,4}S)`
