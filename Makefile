# make          installs the packages that are missing and builds everything; the program is build/release/varve
# make test     the same, then runs all tests          (make test-asan, test-tsan: under sanitizers)
# make fuzz     every fuzz target from its corpus        (FUZZ_ARGS=--help: how long, which ones; make fuzz-fast: without ASan; make fuzz-coverage: the lines that the corpus reaches)
# make demo     a small Python image, indexed, mounted lazily, run; beside a full unpack
# make story    the whole of it on one page: two releases of a notebook image, lazily started, used, pruned, checked (as root; STORY_ARGS=--help)
# make endurance  10,000 random steps against pinned images  (ENDURANCE_STEPS, ENDURANCE_SEED)
# make endurance-daemon  1,000 kills and replacements of the daemon in each mode, under load; 50 images with 20 sessions  (KILLS, SEED, ENDURANCE_ARGS=--help)
# make bench    the table of measurements (bench/README.md)
# make format   the C++ as .clang-format has it          (make check-format: says what is not)
# make install  PREFIX=/usr/local DESTDIR=
# make deb      the same as Debian packages, in build/deb
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

PREFIX ?= /usr/local
DESTDIR ?=
PACKAGES ?= install
FUZZ_ARGS ?= --seconds 30
DEMO_DIR ?= out/demo
STORY_DIR ?= out/story
ENDURANCE_STEPS ?= 10000
ENDURANCE_SEED ?= 1000
KILLS ?= 1000

# A C++ compilation needs up to 2 GiB here: no more of them at once than the memory carries.
JOBS ?= $(shell awk -v cores="$$(nproc)" '/^MemAvailable/ { m = int($$2 / 2097152); print (m < 1) ? 1 : (m < cores) ? m : cores }' /proc/meminfo)

# ccache is in the list of packages; its cache stays inside the tree unless the caller has one.
export CCACHE_DIR ?= $(CURDIR)/build/ccache
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1

install-kinds = $(if $(filter skip,$(PACKAGES)),true,scripts/install-packages packages.txt $(1))
configure = [ -f build/$(1)/build.ninja ] || cmake --preset $(1)
compile = $(call configure,$(1)); cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))

.PHONY: build all test test-asan test-tsan fuzz fuzz-fast fuzz-coverage endurance endurance-daemon demo story story-doc bench install deb format check-format clean packages
build all:
	@$(call install-kinds,build)
	@$(call compile,release)

packages:
	@$(call install-kinds,build test demo)

test:
	@$(call install-kinds,build test)
	@$(call compile,release)
	@scripts/run-tests release $$(($(JOBS) + 2))  # they wait for half of their time

test-asan test-tsan: test-%:
	@$(call install-kinds,build test)
	@$(call compile,$*)
	@scripts/run-tests $* $(JOBS)

fuzz fuzz-fast:
	@$(call install-kinds,build fuzz)
	@$(call compile,$@,fuzzers)
	@scripts/run-fuzz $(FUZZ_ARGS) build/$@

fuzz-coverage:
	@$(call install-kinds,build fuzz)
	@$(call compile,fuzz,fuzzers)
	@/usr/bin/python3 -B scripts/fuzz-coverage build/fuzz

endurance:
	@$(call install-kinds,build test)
	@$(call compile,release,varve)
	@VARVE=build/release/varve /usr/bin/python3 -B tests/oracle/test_pin_walk.py --steps $(ENDURANCE_STEPS) --seed $(ENDURANCE_SEED)

endurance-daemon:
	@$(call install-kinds,build test)
	@$(call compile,release,varve)
	@VARVE=build/release/varve PYTHONPATH=tests/oracle /usr/bin/python3 -B tests/mount/test_endurance.py --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(ENDURANCE_ARGS)

demo:
	@$(call install-kinds,build demo)
	@$(call compile,release,varve)
	@/usr/bin/python3 images/demo.py --varve build/release/varve --out $(DEMO_DIR)

story story-doc:
	@$(call install-kinds,build demo test)
	@$(call compile,release,varve)
	@VARVE=build/release/varve /usr/bin/python3 -B images/story.py --out $(STORY_DIR) $(if $(filter story-doc,$@),--doc docs/figures/story.md) $(STORY_ARGS)

bench:
	@$(call install-kinds,build demo bench)
	@$(call compile,release)
	@/usr/bin/python3 bench/run.py --varve build/release/varve $(BENCH_ARGS)

install: build
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX)

deb:
	@$(call install-kinds,build deb)
	@$(call compile,release,varve varve_manual)
	@scripts/make-deb build/release build/deb
	@lintian --fail-on error,warning build/deb/*.changes

format:
	@$(call install-kinds,format)
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

check-format:
	@$(call install-kinds,format)
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 --dry-run -Werror

clean:
	rm -rf build
