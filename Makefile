# mqttlb. `make help` lists what can be done here.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run build bench-broker test check check-fast lint test-unit test-fuzz test-e2e chaos fuzz vuln setup clean

UNIT := ./pkg/... ./cmd/...
FUZZTIME ?= 5m
DURATION ?= 10m

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "When a command fails, make itself exits with 2, whatever the code of the command; that stands in"
	@echo "make's last line, as in \"Error 3\"."

run: ## try it: mqttlb in front of a cluster of three brokers, or BROKERS=mosquitto; PORT= TLS_PORT= ADMIN_PORT= BROKER_PORT= CERT= KEY= CA=
	@go build -o bin/run ./e2e/run
	@exec bin/run $(if $(PORT),-port '$(PORT)') $(if $(TLS_PORT),-tls-port '$(TLS_PORT)') \
		$(if $(ADMIN_PORT),-admin-port '$(ADMIN_PORT)') $(if $(BROKER_PORT),-broker-port '$(BROKER_PORT)') \
		$(if $(BROKERS),-brokers '$(BROKERS)') \
		$(if $(CERT),-cert '$(CERT)') $(if $(KEY),-key '$(KEY)') $(if $(CA),-ca '$(CA)')

build: ## build bin/mqttlb and bin/broker
	go build -o bin/mqttlb ./cmd/mqttlb
	go build -o bin/broker ./cmd/broker

bench-broker: ## the broker beside mosquitto in one run; BENCH='-rounds 1 -scale 0.1' for less
	@go build -o bin/benchbroker ./e2e/benchbroker
	@exec bin/benchbroker $(BENCH)

test: setup test-unit test-fuzz test-e2e ## all tests; installs the packages that they need
	@echo "== all passed: unit tests with the race detector ($$(go list $(UNIT) | wc -l) packages), fuzz targets, end-to-end tests ($$(go list ./e2e/... | wc -l) packages)"

check: lint test ## what CI runs: lint and all tests

check-fast: lint test-unit ## for every edit: lint, and unit tests with the race detector

lint: ## gofmt, go vet, staticcheck
	@echo "== lint: gofmt, go vet, staticcheck"
	@unformatted=$$(gofmt -l cmd e2e pkg); if [[ -n $$unformatted ]]; then echo "not formatted (run gofmt -w on them):"; echo "$$unformatted"; exit 1; fi
	@go vet ./...
	@go tool staticcheck ./...

test-unit: ## unit tests with the race detector
	@echo "== unit tests, with the race detector"
	@go test -race $(UNIT)

test-fuzz: ## every fuzz target for 10 seconds
	@echo "== fuzz targets, 10 seconds each"
	@go run ./e2e/fuzz -time 10s ./pkg/...

# Never from the test cache: it does not know the binaries that they start.
test-e2e: ## end-to-end tests: the built binaries, real brokers, real clients
	@echo "== end-to-end tests: the built binaries, real brokers, real clients"
	@go test -race -count=1 -p 1 -timeout 20m ./e2e/...

chaos: ## kill, stop and cut off nodes of a cluster under traffic: DURATION=10m, SEED= to have one again
	@go test -count=1 -v -timeout 0 -run '^TestAClusterBearsChaos$$' ./e2e -seed $(or $(SEED),0) -duration $(DURATION)

fuzz: ## every fuzz target for longer: FUZZTIME=5m
	@go run ./e2e/fuzz -time $(FUZZTIME) ./pkg/...

vuln: ## known vulnerabilities in what is built (govulncheck); make's last line says Error 3: some found, Error 4: its database can't be reached
	@code=0; out=$$(go tool govulncheck ./... 2>&1) || code=$$?; echo "$$out"; \
	if [[ $$code -ne 0 && $$code -ne 3 ]] && grep -qE 'vuln\.go\.dev|fetching vulnerabilities' <<<"$$out"; then \
		echo "NOT CHECKED: the vulnerability database can't be reached from here (GOVULNDB=file:///folder names a copy)"; exit 4; fi; \
	exit $$code

setup: ## install the Debian packages that the tests need, services kept from starting
	@go build -o bin/setup ./e2e/setup
	@exec bin/setup

clean: ## remove what was built, and what make run has written
	rm -rf bin run
