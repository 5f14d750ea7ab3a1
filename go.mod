module github.com/parley-ai/parley

go 1.26.0
