package grammar

// Work returns the steps that compiling a schema takes.
func Work(v *Vocab, text []byte) (int, error) {
	c := newCompiler(v)
	s, err := c.document("", text)
	if err == nil {
		_, err = c.compile(c.node([]*schema{s}))
	}
	return MaxWork - c.budget.Left, err
}

// Threads returns the size of the matcher's state.
func (m *Matcher) Threads() int { return len(m.threads) }

// MaxThreads bounds it.
const MaxThreads = maxThreads

// MaxProps bounds the properties that one object names.
const MaxProps = maxProps

// Steps returns the work of the matcher so far.
func (m *Matcher) Steps() int { return m.work }

// MaxWalk bounds what of it one mask takes, about.
const MaxWalk = maxWalk
