// Package stray stands in no table.
package stray
