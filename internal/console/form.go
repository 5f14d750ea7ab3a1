package console

import "net/http"

// field is one field of a form. The template "field" draws it.
type field struct {
	Name, Label string
	Type        string // of the input; "text" when empty
	Value       string // shown; never of a password
	Hint        string
	Error       string
	Unit        string // inside the field, at its right
	Wide        string // a class of the grid: "w3" or "w6"
	// Autocomplete, Inputmode and Maximum are the input's attributes of these names.
	Autocomplete, Inputmode string
	Maximum                 int
	Optional                bool
	Focus                   bool
	// Choices makes the field a list of them, Rows a text of so many lines.
	Choices []formOption
	Rows    int
}

// formOption is a value that a field can have, and its name for people.
type formOption struct{ Value, Name string }

// form is the fields of a page and what was typed into them.
type form struct {
	fields []*field
	whole  string // what is wrong with all of it
}

// form makes a form with what the visitor has sent of it, if it has.
func (v *visit) form(fields ...field) *form {
	f := &form{}
	for _, x := range fields {
		if v.r.Method == http.MethodPost && x.Type != "password" {
			x.Value = v.value(x.Name)
		}
		if x.Type == "" {
			x.Type = "text"
		}
		f.fields = append(f.fields, &x)
	}
	return f
}

// Field is the field of that name. A name that the form does not have is a mistake of its page,
// which the first test of it finds.
func (f *form) Field(name string) *field {
	for _, x := range f.fields {
		if x.Name == name {
			return x
		}
	}
	panic("console: the form has no field " + name)
}

// Fields are all of them, in their order.
func (f *form) Fields() []*field { return f.fields }

// fail says what is wrong with a field and how to put it right.
func (f *form) fail(name, sentence string) {
	if x := f.Field(name); x.Error == "" {
		x.Error = sentence
	}
}

// failAll says what is wrong with the form where it is no single field.
func (f *form) failAll(sentence string) { f.whole = sentence }

// Failed reports whether anything is wrong.
func (f *form) Failed() bool { return f.whole != "" || len(f.Errors()) > 0 }

// Whole is what is wrong with all of it.
func (f *form) Whole() string { return f.whole }

// Errors are the fields that are wrong, in their order.
func (f *form) Errors() []*field {
	var wrong []*field
	for _, x := range f.fields {
		if x.Error != "" {
			wrong = append(wrong, x)
		}
	}
	return wrong
}
