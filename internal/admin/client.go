package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
)

// Client speaks the operator's API. A refusal is an [*Error]. It is safe for
// concurrent use.
type Client struct {
	http  *http.Client
	close func()
}

// Dial reaches the server that runs on the data directory dir. It fails with
// [ErrNoServer] when none does. The caller closes the client.
func Dial(ctx context.Context, dir string) (*Client, error) {
	first, err := connect(ctx, dir)
	if err != nil {
		return nil, err
	}
	first.Close()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, dir) }}
	return &Client{http: &http.Client{Transport: t}, close: t.CloseIdleConnections}, nil
}

// Direct speaks to an API of the same process.
func Direct(api http.Handler) *Client {
	return &Client{http: &http.Client{Transport: direct{api}}, close: func() {}}
}

// Close frees the client's connections.
func (c *Client) Close() { c.close() }

// direct calls a handler without a network between.
type direct struct{ api http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorder{header: make(http.Header), status: http.StatusOK}
	d.api.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
	}, nil
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// call sends in as JSON, unless it is nil, and reads the answer.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return out, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://parley/admin/v1"+path, body)
	if err != nil {
		return out, err
	}
	r.Header.Set(actorHeader, Whoami())
	res, err := c.http.Do(r)
	if err != nil {
		// The URL is of no meaning to an operator.
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return out, fmt.Errorf("the server did not answer: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return out, fmt.Errorf("the server's answer was cut: %w", err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		var e envelope
		if json.Unmarshal(text, &e) != nil || e.Error == nil {
			return out, fmt.Errorf("the server answered %s", res.Status)
		}
		e.Error.Status = res.StatusCode
		return out, e.Error
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, fmt.Errorf("the server's answer is not JSON that was expected: %w", err)
	}
	return out, nil
}

// Whoami is the user of this process, for the record.
var Whoami = sync.OnceValue(func() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
})

// segment is one part of a path; dots are escaped because "." and ".." have a meaning there.
func segment(s string) string { return strings.ReplaceAll(url.PathEscape(s), ".", "%2E") }

func accountPath(name, rest string) string { return "/accounts/" + segment(name) + rest }

// Status describes the process that answers.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, "GET", "/status", nil)
}

// CreateAccount makes an account and gives it the credit asked for.
func (c *Client) CreateAccount(ctx context.Context, in NewAccount) (Created, error) {
	return call[Created](ctx, c, "POST", "/accounts", in)
}

// Accounts lists all accounts in the order of names.
func (c *Client) Accounts(ctx context.Context) ([]Account, error) {
	return call[[]Account](ctx, c, "GET", "/accounts", nil)
}

// Account shows the account of that name or id.
func (c *Client) Account(ctx context.Context, name string) (Account, error) {
	return call[Account](ctx, c, "GET", accountPath(name, ""), nil)
}

// SetAccount changes plan or status.
func (c *Client) SetAccount(ctx context.Context, name string, in Change) (Account, error) {
	return call[Account](ctx, c, "PATCH", accountPath(name, ""), in)
}

// Subscribe puts an account on a plan until a time.
func (c *Client) Subscribe(ctx context.Context, name string, in NewSubscription) (Account, error) {
	return call[Account](ctx, c, "PUT", accountPath(name, "/subscription"), in)
}

// Summary shows what people want to see beside [Client.Account].
func (c *Client) Summary(ctx context.Context, name string) (Summary, error) {
	return call[Summary](ctx, c, "GET", accountPath(name, "/summary"), nil)
}

// AddCredit gives an account credit, once for each reference.
func (c *Client) AddCredit(ctx context.Context, name string, in NewCredit) (Credit, error) {
	return call[Credit](ctx, c, "POST", accountPath(name, "/credits"), in)
}

// Credits lists the grants of an account in the order in which they burn.
func (c *Client) Credits(ctx context.Context, name string) ([]GrantBalance, error) {
	return call[[]GrantBalance](ctx, c, "GET", accountPath(name, "/credits"), nil)
}

// Adjust corrects the credit of an account.
func (c *Client) Adjust(ctx context.Context, name string, in NewAdjustment) (Adjustment, error) {
	return call[Adjustment](ctx, c, "POST", accountPath(name, "/adjustments"), in)
}

// Refund gives back what a call was charged, or a part of it.
func (c *Client) Refund(ctx context.Context, requestID string, in NewRefund) (Refund, error) {
	return call[Refund](ctx, c, "POST", "/receipts/"+segment(requestID)+"/refunds", in)
}

// Usage adds up what an account used. The query may have from, to and by.
func (c *Client) Usage(ctx context.Context, name string, query url.Values) (UsageReport, error) {
	return call[UsageReport](ctx, c, "GET", accountPath(name, "/usage?"+query.Encode()), nil)
}

// Statement lists how the balance of an account changed in a month such as "2026-11".
func (c *Client) Statement(ctx context.Context, name, month string) (Statement, error) {
	return call[Statement](ctx, c, "GET", accountPath(name, "/statements/"+segment(month)), nil)
}

// AuditLog lists at most limit changes, the last first: those of target, an account's
// name or anything's id, or all when it is empty.
func (c *Client) AuditLog(ctx context.Context, target string, limit int) ([]AuditEntry, error) {
	q := url.Values{"target": {target}, "limit": {strconv.Itoa(limit)}}
	return call[[]AuditEntry](ctx, c, "GET", "/audit?"+q.Encode(), nil)
}

// CreateKey makes a key and returns its secret, once.
func (c *Client) CreateKey(ctx context.Context, name string, in NewKey) (Minted, error) {
	return call[Minted](ctx, c, "POST", accountPath(name, "/keys"), in)
}

// Keys lists the keys of an account, oldest first.
func (c *Client) Keys(ctx context.Context, name string) ([]Key, error) {
	return call[[]Key](ctx, c, "GET", accountPath(name, "/keys"), nil)
}

// Key shows a key and what runs with it.
func (c *Client) Key(ctx context.Context, id string) (KeyUse, error) {
	return call[KeyUse](ctx, c, "GET", "/keys/"+segment(id), nil)
}

// SetKey changes a key for every call from now on.
func (c *Client) SetKey(ctx context.Context, id string, in KeyChange) (Key, error) {
	return call[Key](ctx, c, "PATCH", "/keys/"+segment(id), in)
}

// RevokeKey refuses a key from the moment it returns.
func (c *Client) RevokeKey(ctx context.Context, id string) (Revoked, error) {
	return call[Revoked](ctx, c, "POST", "/keys/"+segment(id)+"/revoke", nil)
}

// RotateKey makes a key that takes the place of another and returns its secret, once.
func (c *Client) RotateKey(ctx context.Context, id string, in Rotation) (Rotated, error) {
	return call[Rotated](ctx, c, "POST", "/keys/"+segment(id)+"/rotate", in)
}

// Receipts lists at most limit calls of an account, newest first.
func (c *Client) Receipts(ctx context.Context, name string, limit int) ([]Receipt, error) {
	return call[[]Receipt](ctx, c, "GET", accountPath(name, "/receipts?limit="+strconv.Itoa(limit)), nil)
}

// Request tells what became of the request of that id, or of the one that the completion
// of that id answers.
func (c *Client) Request(ctx context.Context, id string) (Explained, error) {
	return call[Explained](ctx, c, "GET", "/requests/"+segment(id), nil)
}

// Refusals lists at most limit refused calls of an account, newest first.
func (c *Client) Refusals(ctx context.Context, name string, limit int) ([]Refusal, error) {
	return call[[]Refusal](ctx, c, "GET", accountPath(name, "/refusals?limit="+strconv.Itoa(limit)), nil)
}

// Verify proves the books. A broken invariant is no error: see [Verification].
func (c *Client) Verify(ctx context.Context) (Verification, error) {
	return call[Verification](ctx, c, "GET", "/ledger/verification", nil)
}

// Backup writes a copy of the books to a file that is not there yet.
func (c *Client) Backup(ctx context.Context, in NewBackup) (Backup, error) {
	return call[Backup](ctx, c, "POST", "/backups", in)
}

// MakeOperatorLink makes a link to the console, for whoever has it first.
func (c *Client) MakeOperatorLink(ctx context.Context) (OperatorLink, error) {
	return call[OperatorLink](ctx, c, "POST", "/operator-links", nil)
}

// Models lists the models on offer.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	return call[[]Model](ctx, c, "GET", "/models", nil)
}

// Plans lists the plans.
func (c *Client) Plans(ctx context.Context) ([]Plan, error) {
	return call[[]Plan](ctx, c, "GET", "/plans", nil)
}

// Plan shows the plan of that id.
func (c *Client) Plan(ctx context.Context, id string) (Plan, error) {
	return call[Plan](ctx, c, "GET", "/plans/"+segment(id), nil)
}
