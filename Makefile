# mica: one program, one library. `make help` lists the targets. No configure step: pkg-config names the libraries.
VERSION := 0.1.0
SOMINOR := 1
CC ?= gcc
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=

# What the sources use today is linked; a library enters with its first user.
PKGS := jansson libpcre2-8 libcurl libcrypto hwloc libxxhash libedit
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
OPT ?= -O2 -g
SAN ?=
# -ffp-contract=off: docs/ARITHMETIC.md rule 9; a fused multiply-add happens only where the source says fmaf.
BASEFLAGS := -std=c17 $(WARN) -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC -pthread -Iinclude -Isrc \
	-DMICA_VERSION='"$(VERSION)"' -D_GNU_SOURCE
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
PKG_LIBS := $(shell pkg-config --libs $(PKGS))
CFLAGS_ALL = $(BASEFLAGS) $(OPT) $(SAN) $(PKG_CFLAGS) $(CFLAGS)
LIBS = $(PKG_LIBS) -lutf8proc -lm -ldl

LIB_SRC := $(wildcard src/base/*.c src/gguf/*.c src/quant/*.c src/text/*.c src/kern/*.c src/dev/*.c src/store/*.c \
	src/model/*.c src/run/*.c src/eval/*.c src/net/*.c src/serve/*.c src/*.c)
CLI_SRC := $(wildcard src/cli/*.c)
TEST_SRC := $(wildcard tests/*/t_*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SRC:%.c=$(BUILD)/%)
# Small programs that Python tests drive: tests/ROOM/*_main.c.
MAINS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/*_main.c))

.PHONY: all check lint asan tsan fuzz install fmt fmt-check size clean help
all: $(BUILD)/mica $(BUILD)/libmica.so

# Instruction sets: files named *_avx2.c and *_avx512.c get their own flags; the choice between them is made at run time.
$(BUILD)/%_avx2.o: ISA := -mavx2 -mfma -mf16c -mbmi2
$(BUILD)/%_avx512.o: ISA := -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) $(ISA) -MMD -MP -c $< -o $@

$(BUILD)/libmica.a: $(LIB_OBJ)
	@rm -f $@
	@$(AR) rcs $@ $^

$(BUILD)/libmica.so.0.$(SOMINOR): $(LIB_OBJ)
	@echo "  LD  $@"
	@$(CC) -shared -Wl,-soname,libmica.so.0.$(SOMINOR) -Wl,--no-undefined $(SAN) -o $@ $^ $(LIBS) -pthread

$(BUILD)/libmica.so: $(BUILD)/libmica.so.0.$(SOMINOR)
	ln -sf $(notdir $<) $@

# The program holds the library, so that it can be copied alone.
$(BUILD)/mica: $(CLI_OBJ) $(BUILD)/libmica.a
	@echo "  LD  $@"
	@$(CC) $(SAN) -o $@ $(CLI_OBJ) $(BUILD)/libmica.a $(LIBS) -pthread

$(BUILD)/tests/%: tests/%.c $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -Itests -MMD -MP $< -o $@ $(BUILD)/libmica.a -lcmocka $(LIBS)

# Shared objects through which Python tests call the library (ctypes).
SHIMS := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/*/*_shim.c))
$(BUILD)/tests/%.so: tests/%.c $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -shared -MMD -MP $< -o $@ $(BUILD)/libmica.a $(LIBS) -pthread

tests: $(TESTS) $(SHIMS) $(MAINS)
.PHONY: tests

check: all tests
	tests/run_unit.sh $(BUILD)

lint:
	@python3 tests/lint/lint_test.py
	@python3 tests/lint/lint.py

asan:
	$(MAKE) BUILD=build-asan OPT="-O1 -g -fno-omit-frame-pointer" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" check

tsan:
	$(MAKE) BUILD=build-tsan OPT="-O1 -g -fno-omit-frame-pointer" SAN="-fsanitize=thread" check

# Fuzzing: every tests/fuzz/fuzz_*.c, with clang's libFuzzer, in a build of its own (tests/fuzz/run.sh says what may
# stand beside a target). FUZZ_SECONDS is for all of them together.
FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c tests/fuzz/seed_*.c))
FUZZ_LINK = -fsanitize=$(if $(findstring /fuzz_,$@),fuzzer,fuzzer-no-link)
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Itests -Itests/gguf -MMD -MP $< -o $@ $(FUZZ_LINK) $(BUILD)/libmica.a $(LIBS)

.PHONY: fuzzers
fuzzers: $(FUZZERS)

fuzz:
	$(MAKE) CC=clang BUILD=build-fuzz OPT="-O1 -g -fno-omit-frame-pointer" \
		SAN="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" fuzzers
	tests/fuzz/run.sh build-fuzz $(FUZZ_SECONDS)

fmt:
	clang-format -i $$(git ls-files '*.c' '*.h')

fmt-check:
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

size:
	@for r in include src/*; do [ -d $$r ] && printf '%-12s %6d\n' $$r $$(cat $$r/*.[ch] $$r/*.cuh 2>/dev/null | wc -l); done

clean:
	rm -rf build build-asan build-tsan build-fuzz

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:=.d) $(SHIMS:.so=.d) $(MAINS:=.d) $(FUZZERS:=.d)
