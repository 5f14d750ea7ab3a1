package apikey_test

import (
	"crypto/sha256"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/apikey"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// valid is a key that nobody has.
const valid = "sk-parley-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg1LfNzE"

func TestBearer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 512)
	for _, c := range []struct {
		name   string
		values []string
		want   string
		err    error
	}{
		{"no header", nil, "", apikey.ErrMissing},
		{"empty list", []string{}, "", apikey.ErrMissing},
		{"empty value", []string{""}, "", apikey.ErrMissing},
		{"another scheme", []string{"Basic x"}, "", apikey.ErrMissing},
		{"a key without a scheme", []string{valid}, "", apikey.ErrMissing},
		{"a longer scheme", []string{"Bearers k"}, "", apikey.ErrMissing},
		{"the scheme and the key in one", []string{"Bearer" + valid}, "", apikey.ErrMissing},
		{"a space before the scheme", []string{" Bearer k"}, "", apikey.ErrMissing},
		{"only the scheme", []string{"Bearer"}, "", apikey.ErrMissing},
		{"the scheme and a space", []string{"Bearer "}, "", apikey.ErrMissing},
		{"two spaces and nothing", []string{"Bearer  "}, "", apikey.ErrMalformed},
		{"two spaces", []string{"Bearer  k"}, "", apikey.ErrMalformed},
		{"a space within", []string{"Bearer k k"}, "", apikey.ErrMalformed},
		{"a space behind", []string{"Bearer k "}, "", apikey.ErrMalformed},
		{"a tab for the space", []string{"Bearer\tk"}, "", apikey.ErrMalformed},
		{"a tab within", []string{"Bearer k\tk"}, "", apikey.ErrMalformed},
		{"a line break for the space", []string{"Bearer\nk"}, "", apikey.ErrMalformed},
		{"a line break within", []string{"Bearer k\nk"}, "", apikey.ErrMalformed},
		{"a line break behind", []string{"Bearer k\n"}, "", apikey.ErrMalformed},
		{"a carriage return", []string{"Bearer k\r\n"}, "", apikey.ErrMalformed},
		{"a NUL", []string{"Bearer k\x00"}, "", apikey.ErrMalformed},
		{"a DEL", []string{"Bearer k\x7f"}, "", apikey.ErrMalformed},
		{"letters beyond ASCII", []string{"Bearer kéy"}, "", apikey.ErrMalformed},
		{"a space beyond ASCII", []string{"Bearer\u00a0k"}, "", apikey.ErrMissing},
		{"no UTF-8", []string{"Bearer k\xff"}, "", apikey.ErrMalformed},
		{"two headers", []string{"Bearer k", "Bearer k"}, "", apikey.ErrMalformed},
		{"two headers, one empty", []string{"", "Bearer k"}, "", apikey.ErrMalformed},
		{"513 bytes", []string{"Bearer " + long + "k"}, "", apikey.ErrMalformed},
		{"512 bytes", []string{"Bearer " + long}, long, nil},
		{"lower case", []string{"bearer k"}, "k", nil},
		{"mixed case", []string{"bEaReR k"}, "k", nil},
		{"a key", []string{"Bearer " + valid}, valid, nil},
		{"the ends of printable ASCII", []string{"Bearer !~"}, "!~", nil},
	} {
		got, err := apikey.Bearer(c.values)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: bearer(%q) = %q, %v, want %q, %v", c.name, c.values, got, err, c.want, c.err)
		}
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	if s, ok := apikey.ParseSecret(valid); !ok || string(s) != valid {
		t.Fatalf("ParseSecret(%q) = %q, %v, want it back", valid, s, ok)
	}
	for name, bad := range map[string]string{
		"empty":                   "",
		"only the prefix":         "sk-parley-",
		"no checksum":             valid[:53],
		"a character short":       valid[:58],
		"a character long":        valid + "0",
		"no prefix":               valid[10:],
		"another prefix":          "op" + valid[2:],
		"upper case prefix":       "SK-PARLEY-" + valid[10:],
		"case swapped":            valid[:10] + strings.ToLower(valid[10:]),
		"outside the alphabet":    valid[:20] + "-" + valid[21:],
		"beyond ASCII":            valid[:20] + "é" + valid[22:],
		"a space at the end":      valid[:58] + " ",
		"a line break at the end": valid[:58] + "\n",
		"another key's checksum":  valid[:53] + "000000",
	} {
		if s, ok := apikey.ParseSecret(bad); ok {
			t.Errorf("%s: ParseSecret(%q) = %q, true, want false", name, bad, s)
		}
	}
}

// Whoever mistypes a key, in any one place, is told without a lookup.
func TestParseSecret_EveryTypo(t *testing.T) {
	t.Parallel()
	good := string(apikey.Mint())
	for i := range len(good) {
		for c := range 256 {
			if byte(c) == good[i] {
				continue
			}
			if bad := good[:i] + string([]byte{byte(c)}) + good[i+1:]; typo(bad) {
				t.Errorf("ParseSecret takes %q for %q", bad, good)
			}
		}
		if i > 0 && good[i] != good[i-1] {
			if bad := good[:i-1] + good[i:i+1] + good[i-1:i] + good[i+1:]; typo(bad) {
				t.Errorf("ParseSecret takes %q, two characters swapped, for %q", bad, good)
			}
		}
	}
}

func typo(s string) bool { _, ok := apikey.ParseSecret(s); return ok }

func TestMint(t *testing.T) {
	t.Parallel()
	const keys, chars = 3000, 43
	form := regexp.MustCompile(`^sk-parley-[0-9A-Za-z]{49}$`)
	seen := map[apikey.Secret]bool{}
	count := map[byte]int{}
	for range keys {
		s := apikey.Mint()
		if _, ok := apikey.ParseSecret(string(s)); !ok || !form.MatchString(string(s)) {
			t.Fatalf("mint() = %q, which is no key", s)
		}
		if seen[s] {
			t.Fatalf("mint() made %q twice", s)
		}
		seen[s] = true
		for _, c := range []byte(s[10 : 10+chars]) {
			count[c]++
		}
	}
	// Pearson's chi-squared of 61 degrees of freedom: a fair draw exceeds 150 less than
	// once in 1e8 runs. Bytes modulo 62 without rejection would give about 800.
	const expected = float64(keys*chars) / 62
	var chi float64
	for _, c := range []byte(base62) {
		d := float64(count[c]) - expected
		chi += d * d / expected
	}
	if chi > 150 {
		t.Errorf("chi-squared of %d characters is %.0f, want below 150: %v", keys*chars, chi, count)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	s := apikey.Secret(valid)
	if s.Prefix() != "sk-parley-0123" || s.Last4() != "fNzE" || s.Hash() != sha256.Sum256([]byte(valid)) {
		t.Errorf("Prefix, Last4, Hash = %q, %q, %x", s.Prefix(), s.Last4(), s.Hash())
	}
}

// Whatever arrives is refused, or is a token that is safe to look up, mask and log.
func FuzzBearer(f *testing.F) {
	for _, s := range []string{"", "Basic x", "Bearer", "Bearer ", "Bearer  k", "Bearer k k", "bearer k", "Bearer " + valid, "Bearer\t" + valid, "Bearer k\r\n", "Bearer k\xff"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^(?i:bearer) ([\x21-\x7e]{1,512})$`)
	f.Fuzz(func(t *testing.T, value string) {
		token, err := apikey.Bearer([]string{value})
		m := form.FindStringSubmatch(value)
		switch {
		case m != nil:
			if err != nil || token != m[1] {
				t.Errorf("bearer(%q) = %q, %v, want %q", value, token, err, m[1])
			}
		case token != "" || !errors.Is(err, apikey.ErrMissing) && !errors.Is(err, apikey.ErrMalformed):
			t.Errorf("bearer(%q) = %q, %v, want a refusal", value, token, err)
		}
		if token, err := apikey.Bearer([]string{value, value}); token != "" || !errors.Is(err, apikey.ErrMalformed) {
			t.Errorf("bearer of %q twice = %q, %v, want ErrMalformed", value, token, err)
		}
	})
}

// What is taken for a key has the form of one and can be cut into its parts.
func FuzzParseSecret(f *testing.F) {
	for _, s := range []string{"", "sk-parley-", valid, valid[:58], valid + "0", strings.ToUpper(valid), valid[:53] + "000000"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^sk-parley-[0-9A-Za-z]{49}$`)
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := apikey.ParseSecret(text)
		if !ok {
			if s != "" {
				t.Errorf("ParseSecret(%q) = %q with false", text, s)
			}
			return
		}
		if string(s) != text || !form.MatchString(text) {
			t.Errorf("ParseSecret(%q) = %q, true", text, s)
		}
		if s.Prefix() != text[:14] || s.Last4() != text[55:] {
			t.Errorf("the parts of %q are %q and %q", text, s.Prefix(), s.Last4())
		}
	})
}
