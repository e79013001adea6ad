# 'make demo' and 'make test' need Swift, git and make; what else is missing they install (Debian, Ubuntu).
SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
# For example '--static-swift-stdlib': a program that needs no Swift on the machine it is installed on.
SWIFT_FLAGS ?=
# The command that runs the compiler, with its arguments.
RUN ?=
# The programs name no folder of the machine that they were built on.
RELEASE_FLAGS = -Xcc '-ffile-prefix-map=$(CURDIR)=.' $(SWIFT_FLAGS)
BIN := $(DESTDIR)$(PREFIX)/bin
SHARE := $(DESTDIR)$(PREFIX)/share
SOURCES := Sources Tests Benchmarks Examples Package.swift Fuzzing/Package.swift Fuzzing/Sources/fuzz
RELEASE := .build/release
# The libraries under test are optimised, as what is shipped is, and the tests themselves are not: the optimiser has
# compiled functions wrongly that were right without it. They are built in a folder of their own, since '@testable'
# needs an argument that nothing shipped is compiled with. 'CONFIGURATION=debug' tests the debug build of '.build',
# which is quicker to build again after a change.
CONFIGURATION ?= release
ifeq ($(CONFIGURATION),debug)
TESTS := .build/debug
TEST_FLAGS :=
else
TESTS := .build/tests/release
TEST_FLAGS := -c release --scratch-path .build/tests -Xswiftc -enable-testing
endif
# Scripts take the tests, programs and modules of this folder.
export STAGEPACK_TEST_BUILD := $(TESTS)
# What 'stagepack version' prints; a source tree without history has none.
export STAGEPACK_COMMIT ?= $(shell git rev-parse --verify --quiet HEAD 2>/dev/null)
PROGRAMS := stagepack stagepackd
STRIP ?= strip
DOCUMENTATION := $(SHARE)/doc/stagepack
LIB := $(DESTDIR)$(PREFIX)/lib
PACKAGES := .build/deploy

.PHONY: help demo test build-tests build bench bench-daemon bench-instructions bench-updates bench-signatures bench-scale format check docs install \
    install-documentation install-service uninstall dependencies deb sample-deb test-deploy test-release load torture fuzz

help: ## Show what there is to make.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: dependencies ## Install sample packs from a web server on this machine.
	Scripts/demo

test: build-tests ## Build and run the tests.
	Scripts/dependencies dbus-daemon libarchive-tools python3-dbusmock strace
	Scripts/symbols --compile
	Scripts/test

build-tests: dependencies ## Build the tests, and run none.
	swift build $(TEST_FLAGS) --build-tests

build: dependencies ## Build the programs for use.
	$(RUN) swift build -c release --product stagepack $(RELEASE_FLAGS)
	ln -sfn stagepack $(RELEASE)/stagepackd

bench: build ## Measure against curl, aria2 and wget2 with bsdtar (some 15 GB of disk).
	swift build -c release --product LoadPackBenchmark $(RELEASE_FLAGS)
	Scripts/dependencies aria2 curl libarchive-tools wget2
	Benchmarks/run

bench-daemon: build ## Measure the daemon beside aria2 and curl: small files, long queues, idleness, recovery.
	Scripts/dependencies aria2 curl dbus-daemon strace
	Benchmarks/daemon

bench-updates: build ## Measure updates of packs beside zsync, zchunk, casync and ostree (some 40 GB of disk).
	Scripts/dependencies bsdiff casync curl libarchive-tools ostree xdelta3 zchunk zsync
	Benchmarks/updates

bench-instructions: deb ## Count the instructions of common cases, and compare them with the committed figures.
	Benchmarks/instructions

bench-signatures: build ## Measure what signed metadata costs a run with nothing to do.
	Benchmarks/signatures

bench-scale: build ## Measure what staging costs with 10 to 10,000 packs, and with 100 to 300,000 files in one (10 GB of disk).
	Benchmarks/scale

format: ## Format the sources in place.
	swift format format --in-place --parallel -r $(SOURCES)

check: ## Check the formatting, the order of the house, the links of the documentation, and pages that are made.
	swift package resolve
	swift format lint --strict --parallel -r $(SOURCES)
	.ci/check-house
	Scripts/exit-statuses --check
	Scripts/symbols --check
	Scripts/command-reference --check
	Scripts/omissions
	Scripts/links
	Scripts/plain-words --check

docs: ## Build the site of the documentation in .build/documentation/site.
	Scripts/documentation-site

install: ## Install the programs, their completions and manuals (PREFIX, DESTDIR); 'make build' first.
	@test -x $(RELEASE)/stagepack || \
	    { echo "make install: run 'make build' first" >&2; exit 1; }
	install -D -m 0755 -t $(BIN) $(RELEASE)/stagepack
	$(STRIP) --strip-unneeded --remove-section=.comment --remove-section=.note $(BIN)/stagepack
	ln -sfn stagepack $(BIN)/stagepackd
	install -D -m 0644 deploy/man/stagepack.1 $(SHARE)/man/man1/stagepack.1
	install -D -m 0644 -t $(SHARE)/man/man5 deploy/man/*.5
	install -D -m 0644 deploy/man/stagepackd.8 $(SHARE)/man/man8/stagepackd.8
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
	    $(SHARE)/fish/vendor_completions.d
	set -o pipefail; \
	complete() { $(RELEASE)/$$1 --generate-completion-script "$$2" | install -m 0644 /dev/stdin "$$3"; }; \
	for program in $(PROGRAMS); do \
	    complete $$program bash $(SHARE)/bash-completion/completions/$$program && \
	    complete $$program zsh $(SHARE)/zsh/site-functions/_$$program && \
	    complete $$program fish $(SHARE)/fish/vendor_completions.d/$$program.fish || exit; \
	done

# Pages, and the files that they link to: schemas, samples, configurations of web servers.
install-documentation: ## Install the documentation (PREFIX, DESTDIR).
	find *.md LICENSE Manifests docs deploy \( -path Manifests/invalid -o -path deploy/man -o -path 'deploy/test/[!R]*' -o -name __pycache__ \) -prune -o \
	    \( -name '*.md' -o -path 'Manifests/*' -o -path 'docs/*' -o -path 'deploy/grafana/*' -o -path 'deploy/server/nginx/*' -o -name LICENSE \) \
	    -type f -exec install -D -m 0644 {} $(DOCUMENTATION)/{} \;
	Scripts/links $(DOCUMENTATION)

install-service: ## Install units and what package managers run (PREFIX must be /usr, DESTDIR).
	@test '$(PREFIX)' = /usr || { echo "make install-service: pass PREFIX=/usr" >&2; exit 1; }
	install -D -m 0755 deploy/hook/package-hook $(DESTDIR)$(PREFIX)/libexec/stagepack/package-hook
	install -D -m 0644 deploy/systemd/tmpfiles.conf $(LIB)/tmpfiles.d/stagepack.conf
	install -D -m 0644 -t $(LIB)/systemd/system deploy/systemd/system/*
	install -D -m 0644 -t $(LIB)/systemd/user deploy/systemd/user/*
	install -d $(SHARE)/stagepack/apps.d $(DESTDIR)/etc/stagepack/apps.d $(DESTDIR)/var/lib/stagepack

uninstall: ## Remove what 'make install' and 'make install-documentation' installed.
	rm -f $(SHARE)/man/man1/stagepack.1 $(SHARE)/man/man5/stagepack-{manifest,recipe,registration}.5 \
	    $(SHARE)/man/man5/stagepackd.json.5 $(SHARE)/man/man8/stagepackd.8
	rm -rf $(DOCUMENTATION)
	for program in $(PROGRAMS); do \
	    rm -f $(BIN)/$$program $(SHARE)/bash-completion/completions/$$program \
	        $(SHARE)/zsh/site-functions/_$$program $(SHARE)/fish/vendor_completions.d/$$program.fish; \
	done

# The compiler orders some code by the addresses of its own objects, which the size of its environment moves, and by the seed of its
# hash tables. Debug information, which is stripped from the package, has the times of headers. One job at a time, so that each finds the same
# C modules in the cache of the build.
SAME_EACH_TIME := env --ignore-environment PATH='$(PATH)' HOME='$(HOME)' LC_ALL=C.UTF-8 SWIFT_DETERMINISTIC_HASHING=1 \
    STAGEPACK_COMMIT='$(STAGEPACK_COMMIT)' \
    $(shell setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize)

deb: dependencies ## Make the Debian package, which needs no Swift where it is installed.
	swift package resolve
	$(MAKE) build RUN="$(SAME_EACH_TIME)" \
	    SWIFT_FLAGS='--jobs 1 --static-swift-stdlib -debug-info-format none -Xlinker -z -Xlinker now'
	Scripts/dependencies binutils dpkg-dev
	deploy/debian/build '$(PACKAGES)'

sample-deb: ## Make the package of a sample application.
	deploy/sample/build --output $(PACKAGES)

test-deploy: deb ## Check what deploy/ has, and install the packages where everything goes wrong (root).
	deploy/test/all $(PACKAGES)

test-release: deb ## Run the tests against the programs of the package, as CI does.
	STAGEPACK_TEST_PROGRAMS=$(RELEASE) $(MAKE) test

SECONDS_OF_LOAD ?= 600

load: build ## Let hostile clients loose on the daemon for SECONDS_OF_LOAD (root).
	deploy/test/load --seconds $(SECONDS_OF_LOAD)

# Of each scenario: power cuts on each file system, and system calls that fail.
# Also 'cuts' or 'calls'.
PARTS ?= both
CUTS ?= 100
POINTS ?= 200

# Of processes that stage, for each kind of pack.
KILLS ?= 100

torture: ## Have disks lose power (CUTS), system calls fail (POINTS) and processes killed (KILLS), and check what is left (root).
	Scripts/dependencies btrfs-progs e2fsprogs gcc libc6-dev mount python3 strace util-linux xfsprogs
	swift build $(TEST_FLAGS) --product stagepack
	Tests/torture/run $(PARTS) --count $(CUTS) --points $(POINTS) $(if $(SEED),--seed $(SEED))
ifneq ($(KILLS),0)
	swift build $(TEST_FLAGS) --build-tests
	STAGEPACK_TEST_KILLS=$(KILLS) $(if $(SEED),STAGEPACK_TEST_SEED=$(SEED)) $(TESTS)/StagePackPackageTests.xctest \
	    --testing-library swift-testing --filter KilledStagingTests
endif

SECONDS_EACH ?= 600
TARGETS ?=

fuzz: dependencies ## Let libFuzzer loose on the parsers, SECONDS_EACH a target (TARGETS; all of them).
	Fuzzing/run --seconds $(SECONDS_EACH) $(TARGETS)

dependencies:
	@Scripts/dependencies
