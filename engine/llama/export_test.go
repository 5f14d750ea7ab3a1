package llama

// Pool gives tests the worker pool.
type Pool struct{ *pool }

func NewPool(n int) Pool { return Pool{newPool(n)} }

func (p Pool) Run(n int, f func(worker, chunk int)) { p.run(n, f) }

func (p Pool) Close() { p.close() }
