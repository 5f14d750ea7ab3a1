package wire

import "strconv"

// OwnedBy is the owner that every model names.
const OwnedBy = "svc"

// Model is a model on offer.
type Model struct {
	ID            string
	Created       int64 // Unix seconds
	Description   string
	ContextWindow int
	Pricing       Pricing
}

// Pricing is the cost of 1,000 tokens in IU. Both are exact decimals in the
// syntax of a JSON number, such as 0.05, and are written as they are.
type Pricing struct{ Input, Output string }

// AppendJSON appends the whole model object.
func (m *Model) AppendJSON(dst []byte) []byte {
	dst = m.appendListed(dst)
	dst = appendString(append(dst, `,"description":`...), m.Description)
	dst = appendInt(append(dst, `,"context_window":`...), m.ContextWindow)
	dst = append(append(dst, `,"pricing":{"input":`...), m.Pricing.Input...)
	dst = append(append(dst, `,"output":`...), m.Pricing.Output...)
	return append(dst, "}}"...)
}

// appendListed appends an object left open with the members of a list entry.
func (m *Model) appendListed(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), m.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), m.Created, 10)
	return append(dst, `,"owned_by":"`+OwnedBy+`"`...)
}

// ModelList is the answer of GET /v1/models. It shows of each model only id,
// object, created and owned_by.
type ModelList []Model

// AppendJSON appends the list object; data is [] when the list is empty.
func (l ModelList) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i := range l {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(l[i].appendListed(dst), '}')
	}
	return append(dst, "]}"...)
}
