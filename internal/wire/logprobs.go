package wire

import "strconv"

// LeastLogprob stands for a probability of 0, of which JSON has no logarithm.
const LeastLogprob = -9999

// Logprob is a token of an answer with the logarithm of its probability.
type Logprob struct {
	// Token is the text of the token. Of tokens that are parts of characters it is not
	// UTF-8, and Bytes tells what it stands for.
	Token   string
	Bytes   []byte  // nil where the provider does not tell
	Logprob float64 // at least LeastLogprob; written with the precision of float32
	// Top is what else was likely in its place, most likely first. Its entries have no
	// Top.
	Top []Logprob
}

// appendLogprobs appends the logprobs member of a choice; nil is null.
func appendLogprobs(dst []byte, list []Logprob) []byte {
	dst = append(dst, `"logprobs":`...)
	if list == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := range list {
		l := &list[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(l.appendOpen(dst), `,"top_logprobs":[`...)
		for j := range l.Top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(l.Top[j].appendOpen(dst), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendOpen appends the object without top_logprobs and left open.
func (l *Logprob) appendOpen(dst []byte) []byte {
	dst = appendString(append(dst, `{"token":`...), l.Token)
	dst = append(dst, `,"logprob":`...)
	p := l.Logprob
	if !(p >= LeastLogprob) { // nor is NaN
		p = LeastLogprob
	}
	dst = strconv.AppendFloat(dst, p, 'g', -1, 32)
	dst = append(dst, `,"bytes":`...)
	if l.Bytes == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i, b := range l.Bytes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// size is more than what the entry takes as JSON.
func (l *Logprob) size() int {
	n := 80 + 6*len(l.Token) + 4*len(l.Bytes)
	for i := range l.Top {
		n += l.Top[i].size()
	}
	return n
}

// SplitLogprobs cuts a list so that a chunk with the head stays, like one of
// [SplitDelta], far below 64 KiB. rest is nil when all of the list fits, which is
// nearly always.
func SplitLogprobs(list []Logprob) (head, rest []Logprob) {
	total := 0
	for i := range list {
		if total += list[i].size(); total > 2*maxDelta && i > 0 {
			return list[:i:i], list[i:]
		}
	}
	return list, nil
}
