# Every target works on a fresh clone; it fetches what it needs under weights/ and .cache/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Linked in, so that the build does not depend on what git thinks of the directory.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || true)
LDFLAGS  := -s -w -X main.version=$(VERSION)
WEIGHTS  := weights/SmolLM2-135M-Instruct.Q4_1.gguf
LINT     := .cache/bin/golangci-lint
FUZZTIME ?= 20000x
KILLS    ?= 500
SOAK     ?= 10m
ARGS     ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: weights build ## Fetch the weights, build, and serve in the foreground (ARGS="--listen :9000")
	@exec bin/parley serve $(ARGS)

.PHONY: build
build: ## Build the static binary bin/parley
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/parley ./cmd/parley

.PHONY: test
test: ## Set everything up and run every test, with the race detector and the built binary
	@tools/test.sh

.PHONY: unit
unit: weights ## Run the unit tests only, without the race detector (the quick turn)
	go test $$(go list ./... | grep -v /e2e)

.PHONY: e2e
e2e: setup build ## Run the end-to-end tests against bin/parley (ARGS="-run Crash -v")
	PARLEY_BIN=$(CURDIR)/bin/parley go test -count=1 -parallel 4 ./e2e/... $(ARGS)

.PHONY: prove
prove: weights build ## Kill the server KILLS times (500), hold limits for two minutes, 1,800 answers to their form, 10,000 idempotency keys
	PARLEY_PROVE=$(KILLS) PARLEY_BIN=$(CURDIR)/bin/parley go test -count=1 -parallel 4 -timeout 2h -v \
	  -run '^(TestCrash|TestIdempotency|TestLimits_|TestRevoke|TestStop_Under500|TestHostile|TestMemory)' ./e2e/ $(ARGS)
	PARLEY_PROVE=$(KILLS) go test -count=1 -timeout 1h -v ./internal/proof/
	PARLEY_PROVE=$(KILLS) go test -count=1 -timeout 1h -v -run '^TestEmbedded_(JSON|Schema|Tools)$$|^TestIdempotency_Storm$$' ./internal/api/

.PHONY: soak
soak: weights build ## Ask the embedded model for everything at once for SOAK (10m); print figures
	SOAK=$(SOAK) PARLEY_BIN=$(CURDIR)/bin/parley go test -count=1 -timeout 2h -v -run '^TestSoak$$' ./e2e/ $(ARGS)

.PHONY: race
race: weights ## Run the unit tests with the race detector only
	CGO_ENABLED=1 go test -race -shuffle=on -count=1 $$(go list ./... | grep -v /e2e)

.PHONY: fuzz
fuzz: ## Fuzz every target with FUZZTIME inputs each (20000x)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: $(LINT) ## Vet, modernise, check the format and run the linters
	go vet ./...
	go fix -diff ./...
	$(LINT) fmt --diff
	$(LINT) run --allow-parallel-runners ./...

.PHONY: fmt
fmt: $(LINT) ## Format every Go file (gofumpt, gci)
	$(LINT) fmt

.PHONY: bench
bench: build ## Measure charges a second and the line beside other proxies (ARGS="-out FILE")
	@tools/bench.sh $(ARGS)

.PHONY: bench-engine
bench-engine: weights ## Measure the embedded engine beside llama.cpp, which it builds (ARGS="-rounds 5")
	@tools/llamacpp.sh || true
	go run ./engine/internal/bench -weights $(WEIGHTS) -llamacpp .cache/llamacpp/bin $(ARGS)

.PHONY: load
load: build ## Call a server from many clients and check every answer and bill (ARGS="-clients 128")
	go run -C tools ./loadgen -bin $(CURDIR)/bin/parley $(ARGS)

.PHONY: assets
assets: ## Make the console's scripts of their sources; what it makes is committed
	go run -C tools ./bundle $(CURDIR)/internal/console/islands $(CURDIR)/internal/console/assets

.PHONY: weights
weights: ## Fetch the model's weights where they are not there and right (SHA-256)
	@tools/weights.sh

.PHONY: setup
setup: weights ## Set up what the tests need: weights, Debian packages, Python and Node clients
	@tools/setup.sh

.PHONY: clean
clean: ## Remove what was built; weights and data stay
	rm -rf bin .cache

$(LINT): tools/go.mod tools/go.sum
	GOBIN=$(CURDIR)/.cache/bin go -C tools install github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
