# 'make demo' and 'make test' need Swift, git and make; they install the other packages that are missing (Debian, Ubuntu).
SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
# For example '--static-swift-stdlib', for a program that needs no Swift on the target machine.
SWIFT_FLAGS ?=
# A prefix for the build command, such as 'env …' or 'setarch …'.
RUN ?=
# Removes the build machine's paths from the programs.
RELEASE_FLAGS = -Xcc '-ffile-prefix-map=$(CURDIR)=.' $(SWIFT_FLAGS)
BIN := $(DESTDIR)$(PREFIX)/bin
SHARE := $(DESTDIR)$(PREFIX)/share
SOURCES := Sources Tests Benchmarks Examples Package.swift Fuzzing/Package.swift Fuzzing/Sources/fuzz
RELEASE := .build/release
# The libraries under test are optimised, as the released ones are; the tests themselves are not, because the optimiser has
# miscompiled correct test functions. They have a build folder of their own, since '@testable' needs '-enable-testing', which
# releases are built without. 'CONFIGURATION=debug' tests the debug build in '.build', which rebuilds faster after a change.
CONFIGURATION ?= release
ifeq ($(CONFIGURATION),debug)
TESTS := .build/debug
TEST_FLAGS :=
else
TESTS := .build/tests/release
TEST_FLAGS := -c release --scratch-path .build/tests -Xswiftc -enable-testing
endif
# Scripts use the tests, programs and modules of this folder.
export STAGEPACK_TEST_BUILD := $(TESTS)
# The commit that 'stagepack version' prints; empty in a source tree without a repository.
export STAGEPACK_COMMIT ?= $(shell git rev-parse --verify --quiet HEAD 2>/dev/null)
PROGRAMS := stagepack stagepackd
STRIP ?= strip
DOCUMENTATION := $(SHARE)/doc/stagepack
LIB := $(DESTDIR)$(PREFIX)/lib
PACKAGES := .build/deploy

.PHONY: help demo test build-tests build bench bench-daemon bench-instructions bench-updates bench-signatures bench-scale format check docs install \
    install-documentation install-service uninstall uninstall-service dependencies deb sample-deb test-deploy test-release load torture fuzz

# 'make -j install install-service' installs the programs first.
.NOTPARALLEL:

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: dependencies ## Install sample packs from a web server on this machine.
	Scripts/demo

test: build-tests ## Build and run the tests.
	Scripts/dependencies dbus-daemon e2fsprogs libarchive-tools python3-dbusmock strace
	Scripts/symbols --compile
	Scripts/test

build-tests: dependencies ## Build the tests without running them.
	swift build $(TEST_FLAGS) --build-tests

build: dependencies ## Build the programs for use.
	$(RUN) swift build -c release --product stagepack $(RELEASE_FLAGS)
	ln -sfn stagepack $(RELEASE)/stagepackd

bench: build ## Compare with curl, aria2 and wget2 with bsdtar (some 15 GB of disk).
	swift build -c release --product LoadPackBenchmark $(RELEASE_FLAGS)
	Scripts/dependencies aria2 curl libarchive-tools wget2
	Benchmarks/run

bench-daemon: build ## Compare the daemon with aria2 and curl: small files, long queues, idleness, recovery.
	Scripts/dependencies aria2 curl dbus-daemon strace
	Benchmarks/daemon

bench-updates: build ## Compare updates of packs with zsync, zchunk, casync and ostree (some 40 GB of disk).
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

check: ## Check the formatting, house rules, links of the documentation, and generated pages.
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

# Installs the pages, and the files that they link to: schemas, samples, configurations of web servers.
install-documentation: ## Install the documentation (PREFIX, DESTDIR).
	find *.md LICENSE Manifests docs deploy \( -path Manifests/invalid -o -path deploy/man -o -path 'deploy/test/[!R]*' -o -name __pycache__ \) -prune -o \
	    \( -name '*.md' -o -path 'Manifests/*' -o -path 'docs/*' -o -path 'deploy/grafana/*' -o -path 'deploy/server/nginx/*' -o -name LICENSE \) \
	    -type f -exec install -D -m 0644 {} $(DOCUMENTATION)/{} \;
	Scripts/links $(DOCUMENTATION)

# The units and the hook name the program by its path.
install-service: ## Install units and what package managers run (PREFIX must be /usr, DESTDIR).
	@test '$(PREFIX)' = /usr || { echo "make install-service: pass PREFIX=/usr" >&2; exit 1; }
	@test -x $(BIN)/stagepack || \
	    { echo "make install-service: the units run '$(BIN)/stagepack', which is missing: run 'make install PREFIX=/usr' first" >&2; exit 1; }
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

uninstall-service: ## Remove what 'make install-service' installed, except folders of registrations and packs.
	@test '$(PREFIX)' = /usr || { echo "make uninstall-service: pass PREFIX=/usr" >&2; exit 1; }
	rm -f $(DESTDIR)$(PREFIX)/libexec/stagepack/package-hook $(LIB)/tmpfiles.d/stagepack.conf \
	    $(patsubst deploy/systemd/%,$(LIB)/systemd/%,$(wildcard deploy/systemd/system/* deploy/systemd/user/*))
	test ! -d $(DESTDIR)$(PREFIX)/libexec/stagepack || \
	    rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/libexec/stagepack

# Settings that make the compiler's output reproducible. The compiler orders some code by addresses of its own objects, which the size of
# its environment moves, and by the seed of its hash tables. Debug information, which is stripped from the package, contains the times of
# headers. One job at a time compiles the C modules in the same order in every build, so that each job finds the same ones in the cache.
SAME_EACH_TIME := env --ignore-environment PATH='$(PATH)' HOME='$(HOME)' LC_ALL=C.UTF-8 SWIFT_DETERMINISTIC_HASHING=1 \
    STAGEPACK_COMMIT='$(STAGEPACK_COMMIT)' \
    $(shell setarch --addr-no-randomize true 2>/dev/null && echo setarch --addr-no-randomize)

deb: dependencies ## Make the Debian package, which needs no Swift where it is installed.
	swift package resolve
	$(MAKE) build RUN="$(SAME_EACH_TIME)" \
	    SWIFT_FLAGS='--jobs 1 --static-swift-stdlib -debug-info-format none -Xlinker -z -Xlinker now'
	Scripts/dependencies binutils dpkg-dev
	rm -f '$(PACKAGES)'/stagepack_*.deb
	deploy/debian/build '$(PACKAGES)'

sample-deb: ## Make the package of a sample application.
	deploy/sample/build --output $(PACKAGES)

test-deploy: deb ## Check the files in deploy/, and install the packages under fault conditions (root).
	deploy/test/all $(PACKAGES)

test-release: deb ## Run the tests against the programs of the package, as CI does.
	STAGEPACK_TEST_PROGRAMS=$(RELEASE) $(MAKE) test

SECONDS_OF_LOAD ?= 600

load: build ## Run hostile clients against the daemon for SECONDS_OF_LOAD (root).
	deploy/test/load --seconds $(SECONDS_OF_LOAD)

# PARTS: 'both', 'cuts' or 'calls'. For each scenario, CUTS is the number of power cuts on each file system, and POINTS the number of
# failed system calls.
PARTS ?= both
CUTS ?= 100
POINTS ?= 200

# The number of kills of staging processes, for each kind of pack.
KILLS ?= 100

torture: ## Cut the power of disks (CUTS), fail system calls (POINTS), kill processes (KILLS), and check the remaining files (root).
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

fuzz: dependencies ## Run libFuzzer on the parsers, SECONDS_EACH for each target (TARGETS; default: all).
	Fuzzing/run --seconds $(SECONDS_EACH) $(TARGETS)

dependencies:
	@Scripts/dependencies
