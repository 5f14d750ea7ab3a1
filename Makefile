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

# What make prove runs of each package; a proof that is added gets its name here. In one package at a
# time, so that the figures of one do not wait for the processors of another.
PROVE_E2E    := Crash|Idempotency|Limits_|Revoke|Storm|Stop_Under500|Hostile|Memory|Schemathesis
PROVE_API    := CutAtEveryEvent|Idempotency_Storm
PROVE_BODIES := Embedded_(JSON|Schema|Tools)|MutatedBodies
PROVE_BOOKS  := Due_Executors|Migrate|Backup|Restore
PROVE_UNITS  := ./internal/proof/ ./internal/ledger/simulation/ ./internal/ratelimit/
PROVE_GO     := -count=1 -p 1 -timeout 90m
PROOFS       := T1,T2,T3,T5,T6,T7,T8,T9,T10,T11,T12,T13,T14,T15,T20

.PHONY: prove
prove: setup build ## Prove the promises about money at full size, with a table; KILLS=500 random kills among them
	go build -C tools -buildvcs=false -o ../.cache/bin/testcount ./testcount
	PARLEY_PROVE=$(KILLS) PARLEY_BIN=$(CURDIR)/bin/parley .cache/bin/testcount -noskip -proofs $(PROOFS) -- \
		"$(PROVE_GO) $(PROVE_UNITS)" \
		"$(PROVE_GO) -run ^Test($(PROVE_BOOKS)) ./internal/account/ ./internal/store/" \
		"$(PROVE_GO) -run ^Test($(PROVE_API)) ./internal/api/" \
		"$(PROVE_GO) -parallel 4 -run ^Test($(PROVE_E2E)) ./e2e/ $(ARGS)" \
		"$(PROVE_GO) -run ^Test($(PROVE_BODIES)) ./internal/api/"

# The core is all of internal/money and internal/ledger: neither does I/O. A part of it:
# make mutants ARGS="-only ledger/hold.go", every third mutant: ARGS="-only ledger -every 3".
.PHONY: mutants
mutants: ## Change the code of the money, one thing at a time: its tests must notice 90 %
	go build -C tools -o ../.cache/bin/mutants ./mutants
	.cache/bin/mutants $(ARGS)

.PHONY: soak
soak: weights build ## Ask the embedded model for everything at once for SOAK (10m); print figures
	SOAK=$(SOAK) PARLEY_BIN=$(CURDIR)/bin/parley go test -count=1 -timeout 2h -v -run '^TestSoak$$' ./e2e/ $(ARGS)

.PHONY: race
race: weights ## Run the unit tests with the race detector only
	CGO_ENABLED=1 go test -race -shuffle=on -count=1 $$(go list ./... | grep -Ev '/e2e|/internal/proof')

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

.PHONY: bench-rows
bench-rows: build ## Fill a database with 10 million calls and load every page of the console (ARGS="-rows N -keep DIR")
	go run ./internal/bench -only rows $(ARGS)

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
