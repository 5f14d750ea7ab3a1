package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

// querier runs what is not on the hot path, in a transaction that has begun. Texts bind
// by position.
type querier interface {
	// run returns how many rows it changed.
	run(ctx context.Context, text string, args ...any) (int64, error)
	// list returns all rows; integers are int64, texts string, NULL nil.
	list(ctx context.Context, text string, args ...any) ([][]any, error)
}

// run prepares text each time: it is for what is rare.
func (j *journal) run(ctx context.Context, text string, args ...any) (int64, error) {
	st, err := j.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	n, err := j.exec(ctx, st, args...)
	return n, errors.Join(err, st.Close())
}

func (j *journal) list(ctx context.Context, text string, args ...any) (all [][]any, err error) {
	st, err := j.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	rs, err := st.QueryContext(ctx, j.bind(args))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	row := make([]driver.Value, len(rs.Columns()))
	for {
		switch err := rs.Next(row); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		values := make([]any, len(row))
		for i, v := range row {
			values[i] = v
		}
		all = append(all, values)
	}
}

func (j *journal) prepare(ctx context.Context, text string) (statement, error) {
	st, err := j.conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return st.(statement), nil
}

// sqlTx is a querier over database/sql.
type sqlTx struct {
	conn interface {
		ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	}
}

func (t sqlTx) run(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := t.conn.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t sqlTx) list(ctx context.Context, text string, args ...any) ([][]any, error) {
	rs, err := t.conn.QueryContext(ctx, text, args...)
	return rows(rs, err, func(rs *sql.Rows, row *[]any) error {
		columns, err := rs.Columns()
		if err != nil {
			return err
		}
		values := make([]any, len(columns))
		places := make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		*row = values
		return rs.Scan(places...)
	})
}
