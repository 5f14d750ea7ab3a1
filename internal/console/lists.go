package console

import "slices"

// selector is a choice of a filter. The template "select" shows it.
type selector struct {
	Name, Label string
	Options     []pick
}

func newSelector(name, label string, options []pick) selector {
	return selector{name, label, options}
}

// pick is a choice of a select.
type pick struct {
	Value, Name string
	Chosen      bool
}

// chip is a filter that is on, and the address without it.
type chip struct{ Name, Without string }

// choose marks the option of that value.
func choose(options []pick, value string) {
	for i := range options {
		options[i].Chosen = options[i].Value == value
	}
}

// chosen is the name of the option that is, unless it is the one that filters nothing.
func chosen(options []pick) string {
	for _, o := range options {
		if o.Chosen && o.Value != "" {
			return o.Name
		}
	}
	return ""
}

// keyOptions are the keys of the account, also those that are revoked: their calls remain.
func (v *visit) keyOptions(value string) []pick {
	options := []pick{{Name: "Every key"}}
	for _, k := range v.s.Keys.List(v.account.ID) {
		options = append(options, pick{Value: k.ID, Name: k.Name})
	}
	if value != "" && !slices.ContainsFunc(options, func(o pick) bool { return o.Value == value }) {
		options = append(options, pick{Value: value, Name: middle(value)})
	}
	choose(options, value)
	return options
}

// modelOptions are the models on offer, and the one asked for.
func (v *visit) modelOptions(value string) []pick {
	options := []pick{{Name: "Every model"}}
	for _, m := range v.s.Models.List(v.now) {
		options = append(options, pick{Value: m.ID, Name: m.ID})
	}
	if value != "" && !slices.ContainsFunc(options, func(o pick) bool { return o.Value == value }) {
		options = append(options, pick{Value: value, Name: middle(value)})
	}
	choose(options, value)
	return options
}

// keyName is what a key of the account is called; its id where it is gone.
func (v *visit) keyName(id string) string {
	if k, ok := v.s.Keys.Find(id); ok && v.account != nil && k.AccountID == v.account.ID {
		return k.Name
	}
	return middle(id)
}
