// Package engine runs a language model on the CPU inside this process: a GGUF file
// in, tokens out, for many requests at once.
//
// The same request with the same seed gives the same tokens whatever else runs
// beside it, with any number of threads, on every kernel level. Memory is fixed
// when a model is opened, outside the Go heap; a request that does not fit waits
// in a bounded queue.
package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
	"github.com/parley-ai/parley/engine/prompt"
	"github.com/parley-ai/parley/engine/tokenizer"
)

// Errors of [Engine.Generate]; they are wrapped with what is wrong.
var (
	// ErrBusy: the queue is full, or the request waited in it for QueueWait.
	ErrBusy = errors.New("engine: busy")
	// ErrClosed: the engine was closed before the request ended.
	ErrClosed = errors.New("engine: closed")
	// ErrTooLong: prompt and MaxTokens together exceed the context.
	ErrTooLong = errors.New("engine: longer than the context")
	// ErrNotStarted: the context ended while the request waited; nothing was computed.
	ErrNotStarted = errors.New("engine: not started")
	// ErrRequest: a field of the request makes no sense.
	ErrRequest = errors.New("engine: bad request")
	// ErrConstraint: the request's constraint, which was not done, allows no token.
	ErrConstraint = errors.New("engine: the constraint allows no token")
)

// PanicError ends the requests that were in a step that panicked, which is a bug.
// Others, and the engine, go on.
type PanicError struct {
	Value any
	Stack []byte // where it panicked
}

// Error gives the panic's value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("engine: panic in a step: %v", e.Value) }

// version changes the fingerprint when a change here changes what a seed gives.
const version = "2"

// Options say how a model is run. The zero value is good for one model on a
// machine that does other work too.
type Options struct {
	Threads      int           // 0: the cores less one, at least 1
	MaxSequences int           // sequences that run at once; 0: 16
	Context      int           // positions a sequence may have, up to the file's; 0: the file's
	KVBytes      int64         // memory for keys and values; 0: 512 MiB; too little for one full context is an error
	PrefillChunk int           // prompt tokens in a step, in all; 0: 64
	QueueLength  int           // requests that wait, in all; 0: 256
	QueueWait    time.Duration // the longest wait; 0: 30 s
	// Kernel forces a level: "scalar", "avx2" or "avx512". "" means the
	// environment's PARLEY_KERNEL, else the best that this processor has.
	Kernel string
	// Progress, if not nil, is told how many bytes of weights are repacked. It is
	// called by the goroutine that called Open, with rising values.
	Progress func(done, total int64)
}

// fill replaces zeros by defaults and refuses what is negative.
func (o *Options) fill(file llama.Params) error {
	o.Threads = cmp.Or(o.Threads, max(1, runtime.GOMAXPROCS(0)-1))
	o.MaxSequences = cmp.Or(o.MaxSequences, 16)
	o.Context = cmp.Or(o.Context, file.Context)
	o.KVBytes = cmp.Or(o.KVBytes, 512<<20)
	o.PrefillChunk = cmp.Or(o.PrefillChunk, 64)
	o.QueueLength = cmp.Or(o.QueueLength, 256)
	o.QueueWait = cmp.Or(o.QueueWait, 30*time.Second)
	o.Kernel = cmp.Or(o.Kernel, os.Getenv("PARLEY_KERNEL"))
	for _, v := range []int64{int64(o.Threads), int64(o.MaxSequences), int64(o.Context), o.KVBytes, int64(o.PrefillChunk), int64(o.QueueLength), int64(o.QueueWait)} {
		if v < 0 {
			return fmt.Errorf("engine: negative option %d", v)
		}
	}
	if o.Context > file.Context {
		return fmt.Errorf("engine: a context of %d positions; the file's has %d", o.Context, file.Context)
	}
	return nil
}

// Info says what runs.
type Info struct {
	Name         string // the model's own
	Quantization string // the type of most weights in the file, such as "Q4_1"
	FileBytes    int64
	Context      int // positions of a sequence
	Vocab        int
	Threads      int
	MaxSequences int
	Kernel       string // the level in use
	// Fingerprint is ten hex digits of the file and the engine's version: as long
	// as it is the same, a seed gives the same tokens.
	Fingerprint string
}

// Engine is an open model. Its methods may be called from many goroutines.
type Engine struct {
	o        Options
	info     Info
	tk       *tokenizer.Tokenizer
	template *prompt.Template
	kernel   *kernel.Table
	vocab    func() (*grammar.Vocab, error)

	// Owned by the loop.
	model   *llama.Model
	cache   *kv.Cache
	running []*sequence // in the order of their admission, choices of a call together
	batch   batch
	speed   rate

	wake chan struct{} // has room for one: something changed
	done chan struct{} // closed when the loop has ended

	mu      sync.Mutex
	queue   queue
	tickets int64
	stats   Stats
	closed  bool

	closing  sync.Once
	closeErr error
}

// Open loads the model at path: it maps the file, checks it, repacks the weights
// and starts the engine's goroutines. The file is not needed afterwards. An error
// names the metadata key, or the tensor and its offset, that is at fault; a kernel
// level this processor does not have is an error too. Close ends it.
func Open(path string, o Options) (*Engine, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: %w", path, err)
	}
	if err := o.fill(p); err != nil {
		return nil, err
	}
	e := &Engine{o: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	e.vocab = sync.OnceValues(e.newVocab)
	if err := e.load(f, p); err != nil {
		return nil, fmt.Errorf("engine: %s: %w", path, err)
	}
	if err := e.describe(path, f, p); err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), e.free())
	}
	go e.loop()
	return e, nil
}

// load makes all that a file gives, the text side beside the weights: it takes a
// third as long as they do on one thread.
func (e *Engine) load(f *gguf.File, p llama.Params) error {
	text := make(chan error, 1)
	go func() { text <- e.loadText(f, p) }()
	err := e.loadModel(f, p)
	if bad := <-text; bad != nil {
		if err == nil {
			bad = errors.Join(bad, e.free())
		}
		return bad
	}
	return err
}

func (e *Engine) loadText(f *gguf.File, p llama.Params) error {
	var err error
	if e.tk, err = tokenizer.FromGGUF(f); err != nil {
		return err
	}
	if n := e.tk.Size(); n != p.Vocab {
		return fmt.Errorf("tokenizer.ggml.tokens: %d tokens, but token_embd.weight has %d rows", n, p.Vocab)
	}
	source, ok := f.String("tokenizer.chat_template")
	if !ok {
		return errors.New("tokenizer.chat_template is missing")
	}
	if e.template, err = prompt.New(source, e.tk); err != nil {
		return fmt.Errorf("tokenizer.chat_template: %w", err)
	}
	return nil
}

func (e *Engine) loadModel(f *gguf.File, p llama.Params) error {
	o := &e.o
	var err error
	if e.kernel, err = kernel.Find(o.Kernel); err != nil {
		return err
	}
	if e.cache, err = kv.New(p.KVShape(), o.KVBytes, kv.Pages(o.Context)); err != nil {
		return err
	}
	e.model, err = llama.Load(f, p, llama.Options{
		Kernel: e.kernel, Cache: e.cache, Threads: o.Threads, Context: o.Context,
		Columns: o.MaxSequences + o.PrefillChunk, Logits: o.MaxSequences, Progress: o.Progress,
	})
	if err != nil {
		return errors.Join(err, e.cache.Close())
	}
	e.info.Kernel = e.kernel.Name
	e.stats.PagesTotal, e.stats.Places = e.cache.Total(), o.MaxSequences
	return nil
}

func (e *Engine) describe(path string, f *gguf.File, p llama.Params) error {
	h, err := os.Open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	st, err := h.Stat()
	if err != nil {
		return err
	}
	header := st.Size()
	for _, t := range f.Tensors() {
		header = min(header, t.Offset)
	}
	if e.info.Fingerprint, err = fingerprint(h, st.Size(), header); err != nil {
		return err
	}
	name, _ := f.String("general.name")
	_, source := e.model.Weights()
	e.info.Name = cmp.Or(name, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	e.info.Quantization = source.String()
	e.info.FileBytes = st.Size()
	e.info.Context, e.info.Vocab = e.o.Context, p.Vocab
	e.info.Threads, e.info.MaxSequences = e.o.Threads, e.o.MaxSequences
	return nil
}

// fingerprint hashes the header and samples of the weights: all of them would take
// longer than loading, and no training leaves the samples as they were.
func fingerprint(r io.ReaderAt, size, header int64) (string, error) {
	const samples, length = 64, 4096
	sum := sha256.New()
	fmt.Fprintf(sum, "parley engine %s, %d bytes\n", version, size)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, header)); err != nil {
		return "", err
	}
	for i := range int64(samples) {
		at := header + (size-header)/samples*i
		if _, err := io.Copy(sum, io.NewSectionReader(r, at, length)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:10], nil
}

// Close ends running and waiting requests with [ErrClosed], waits for the step
// that is under way, and frees all memory. A second Close does the same wait and
// returns the same error.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.rouse()
		<-e.done
		e.closeErr = e.free()
	})
	return e.closeErr
}

func (e *Engine) free() error { return errors.Join(e.model.Close(), e.cache.Close()) }

// Info says what runs. It does not change, and may be asked after Close.
func (e *Engine) Info() Info { return e.info }

// Stats returns counts as of the end of the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Waiting = e.queue.n
	return s
}

// Message is one turn of a conversation. Roles are the template's: "system",
// "user" and "assistant" work everywhere.
type Message struct {
	Role, Content string
}

// Encode renders the conversation with the file's chat template, ready for the
// assistant's answer, and encodes it. Text of messages never becomes a control
// token. Encoding stops once there are more than limit ids (limit 0: none): then
// len(ids) > limit, and the ids are good for nothing but that. An error is the
// template's. It may be called after Close.
func (e *Engine) Encode(msgs []Message, limit int) ([]int32, error) {
	ms := make([]prompt.Message, len(msgs))
	for i, m := range msgs {
		ms[i] = prompt.Message{Role: m.Role, Content: m.Content}
	}
	ids, err := e.template.Encode(ms, true, limit)
	if errors.Is(err, prompt.ErrTooLong) {
		return make([]int32, limit+1), nil
	}
	return ids, err
}

// rouse tells the loop that something changed.
func (e *Engine) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// enqueue puts c where the loop finds it.
func (e *Engine) enqueue(c *call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	// Those for whom there is a free place only pass through.
	if e.queue.n >= e.o.QueueLength+e.o.MaxSequences-e.stats.Running {
		return fmt.Errorf("%w: %d requests wait", ErrBusy, e.queue.n)
	}
	c.ticket = e.ticket()
	e.queue.push(c)
	e.rouse()
	return nil
}

// withdraw reports whether c was still waiting as a whole; then it waits no more.
func (e *Engine) withdraw(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.admitted == 0 && e.queue.remove(c)
}

// leave ends a request whose consumer has gone.
func (e *Engine) leave(c *call) {
	c.gone.Store(true)
	e.mu.Lock()
	waited := e.queue.remove(c) && c.admitted == 0
	e.mu.Unlock()
	if !waited {
		e.rouse()
	}
}
