package console_test

import (
	"encoding/binary"
	"net/http"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/member"
)

// changing is a zone whose clocks go forward by an hour at a time: TZif of RFC 9636, where the
// first block, of 32 bits, is empty.
func changing(t *testing.T, at time.Time) *time.Location {
	t.Helper()
	header := func(times, types, chars uint32) []byte {
		b := append([]byte("TZif2"), make([]byte, 15+3*4)...)
		for _, n := range []uint32{times, types, chars} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return b
	}
	b := append(header(0, 0, 0), header(1, 2, 4)...)
	b = binary.BigEndian.AppendUint64(b, uint64(at.Unix()))
	b = append(b, 1)
	for _, offset := range []uint32{0, 3600} {
		b = append(binary.BigEndian.AppendUint32(b, offset), 0, 0)
	}
	loc, err := time.LoadLocationFromTZData("changing", append(b, "ZZZ\x00\n\n"...))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestKeys_DaysOfUTC: thirty days are as long where the machine's clocks change in between.
func TestKeys_DaysOfUTC(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	zone := changing(t, time.Now().AddDate(0, 0, 10))
	w.gate.Now = func() time.Time { return time.Now().In(zone) }
	if r := w.ask("POST", "/keys/new", ada, w.filled("/keys/new", ada, "name", "nightly", "expires", "30")); r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
	if left := time.Until(w.keys.List(w.lab.ID)[0].ExpiresAt).Round(time.Minute); left != 30*24*time.Hour {
		t.Errorf("the key ends in %v, want 30 days", left)
	}
}
