package console_test

import (
	"encoding/csv"
	"strings"
	"testing"
)

// readCSV reads a file as maps from the names of its head.
func readCSV(t *testing.T, text string) (lines []map[string]string) {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(all) == 0 {
		t.Fatalf("%v in %q", err, text)
	}
	for _, row := range all[1:] {
		line := map[string]string{}
		for i, name := range all[0] {
			line[name] = row[i]
		}
		lines = append(lines, line)
	}
	return lines
}
