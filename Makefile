# Each target works on a fresh Debian machine with Go and Node, and says what it does, line by line.
#
#   make run     build plinth and serve on this machine
#   make test    everything that CI runs
#   make help    the other targets

.POSIX:
.SUFFIXES:
.PHONY: help run build test check lint vet unit peers bench bench-peers fuzz clean

GO      = go
BIN     = bin/plinth
ARGS    =
FUZZTIME = 10s
BENCHTIME = 1s
COUNT   = 1
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck
NPM     = test/npm examples/hello-node

help:
	@echo 'make run          build plinth and serve on this machine (ARGS="--memory 256MiB" passes flags on)'
	@echo 'make build        build bin/plinth'
	@echo 'make test         everything that CI runs; needs Go and Node'
	@echo 'make lint         formatting, go vet for three systems, staticcheck, the house rules'
	@echo 'make bench        the micro-benchmarks, then plinth bench --quick'
	@echo 'make bench-peers  plinth against NATS and a minimal relay, with ratios'
	@echo 'make fuzz         each fuzz target for FUZZTIME (10s)'
	@echo 'make clean        remove what the other targets built'

run: build
	@echo '== plinth serve: stop it with Ctrl-C; its data stays in ./plinth-data'
	@exec $(BIN) serve $(ARGS)

build:
	@tools/setup go
	@echo '== build $(BIN)'
	@mkdir -p bin
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o $(BIN) ./cmd/plinth

test: check unit peers
	@echo '== all passed'

# check is what needs no tests to run.
check lint:
	@tools/setup go
	@echo '== gofmt'
	@bad=$$(gofmt -l $$(find . -name '*.go' -not -path '*/node_modules/*' -not -path '*/testdata/*')); \
		if [ -n "$$bad" ]; then echo "not formatted (gofmt -w FILE):"; echo "$$bad"; exit 1; fi
	@for os in linux darwin windows; do \
		echo "== go vet for $$os"; \
		GOOS=$$os CGO_ENABLED=0 $(GO) vet ./... || exit 1; \
	done
	@echo '== staticcheck'
	@$(STATICCHECK) ./...
	@echo '== go.mod holds what is imported'
	@$(GO) mod verify >/dev/null && $(GO) mod tidy -diff
	@echo '== house rules'
	@$(GO) test -count=1 .

unit: node_modules
	@tools/setup go cc
	@echo '== go test -race (with fuzz corpora, the npm SDK and the examples)'
	@TEST_NPM=1 $(GO) test -race -shuffle=on -timeout 25m ./...

# node_modules is installed again when a lock file is newer than what is there.
node_modules:
	@tools/setup node
	@for dir in $(NPM); do \
		if [ $$dir/node_modules/.package-lock.json -nt $$dir/package-lock.json ]; then continue; fi; \
		echo "== npm ci in $$dir"; \
		(cd $$dir && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) || exit 1; \
	done
.PHONY: node_modules

peers:
	@tools/setup go
	@echo '== bench/peers builds'
	@cd bench/peers && $(GO) vet ./... && $(GO) test ./...

bench: build
	@echo '== micro-benchmarks (BENCHTIME=$(BENCHTIME) COUNT=$(COUNT))'
	@$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -count $(COUNT) ./...
	@echo '== plinth bench --quick'
	@$(BIN) bench --quick $(ARGS)

bench-peers: build
	@echo '== plinth against its peers'
	@cd bench/peers && $(GO) run ./cmd/bench-peers -out ../.. -engine ../../$(BIN) $(ARGS)

fuzz:
	@tools/setup go
	@for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "== $$target in $$(dirname $$file) for $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file) || exit 1; \
		done; \
	done

clean:
	rm -rf bin test/npm/node_modules examples/hello-node/node_modules
