# mica: one program, one library. `make help` lists the targets. No configure step: pkg-config names the libraries.
VERSION := 0.1.0
SOMINOR := 1
CC ?= gcc
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=

# What the sources use today is linked; a library enters with its first user.
PKGS := zlib jansson libpcre2-8 libcurl libcrypto hwloc libxxhash libmicrohttpd sqlite3
CLI_PKGS := libedit # the command alone
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
OPT ?= -O2 -g
SAN ?=
# -ffp-contract=off: docs/ARITHMETIC.md rule 9; a fused multiply-add happens only where the source says fmaf.
BASEFLAGS := -std=c17 $(WARN) -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC -pthread -Iinclude -Isrc \
	-DMICA_VERSION='"$(VERSION)"' -D_GNU_SOURCE
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) $(CLI_PKGS))
PKG_LIBS := $(shell pkg-config --libs $(PKGS))
CFLAGS_ALL = $(BASEFLAGS) $(OPT) $(SAN) $(PKG_CFLAGS) $(CFLAGS)
LIBS = $(PKG_LIBS) -lutf8proc -lm -ldl
CLI_LIBS := $(shell pkg-config --libs $(CLI_PKGS))

LIB_SRC := $(wildcard src/base/*.c src/gguf/*.c src/quant/*.c src/text/*.c src/kern/*.c src/dev/*.c src/store/*.c \
	src/model/*.c src/run/*.c src/eval/*.c src/net/*.c src/serve/*.c src/*.c)
CLI_SRC := $(wildcard src/cli/*.c)
TEST_SRC := $(wildcard tests/*/t_*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(BUILD)/page_files.o
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SRC:%.c=$(BUILD)/%)
# The emulation proves bits, which sanitizers do not change, and takes them minutes to compile.
ifneq ($(SAN),)
TESTS := $(filter-out %/t_quant_emu512,$(TESTS))
endif
# Small programs that Python tests drive: tests/ROOM/*_main.c.
MAINS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/*_main.c))

.PHONY: all check lint asan tsan fuzz install fmt fmt-check size clean help
all: $(BUILD)/mica $(BUILD)/libmica.so

# Instruction sets: files named *_avx2.c and *_avx512.c get their own flags; the choice between them is made at run time.
# A fuzzing build leaves its instruments out of them: no fuzz target multiplies, and clang would take minutes.
ifdef PLAIN_SIMD
$(BUILD)/%_avx2.o $(BUILD)/%_avx512.o: override SAN :=
endif
ISA_AVX2 := -mavx2 -mfma -mf16c -mbmi2
$(BUILD)/%_avx2.o: ISA := $(ISA_AVX2)
$(BUILD)/%_avx512.o: ISA := $(ISA_AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) $(ISA) -MMD -MP -c $< -o $@

# The page of `mica serve`: the files of web/ as they are, and a table of them.
WEB_FILES := $(wildcard web/*.html web/*.js web/*.css web/*.svg web/*.png web/*.ico web/*.webmanifest)
$(BUILD)/page_files.s: $(WEB_FILES) Makefile
	@mkdir -p $(@D)
	@{ echo '.section .rodata'; \
	for f in $(WEB_FILES); do \
		echo ".Lname_$${f##*/}: .asciz \"$${f##*/}\""; \
		echo ".Ldata_$${f##*/}: .incbin \"$$f\""; echo ".Lend_$${f##*/}:"; \
	done; \
	echo '.section .data.rel.ro,"aw"'; echo '.balign 8'; echo '.globl page_files'; echo '.hidden page_files'; \
	echo 'page_files:'; \
	for f in $(WEB_FILES); do \
		echo ".quad .Lname_$${f##*/}, .Ldata_$${f##*/}, .Lend_$${f##*/} - .Ldata_$${f##*/}"; \
	done; \
	echo '.quad 0, 0, 0'; echo '.section .note.GNU-stack,"",%progbits'; } > $@
$(BUILD)/page_files.o: $(BUILD)/page_files.s
	@echo "  AS  web/"
	@$(CC) -c $< -o $@

# Every C file through the other compiler's warnings, without code: make syntax CC=clang BUILD=build-clang
SYNTAX := $(patsubst %.c,$(BUILD)/%.syntax,$(LIB_SRC) $(CLI_SRC) $(TEST_SRC) \
	$(wildcard tests/*/*_main.c tests/*/*_shim.c tests/fuzz/*.c examples/*.c))
$(BUILD)/%_avx2.syntax: ISA := -mavx2 -mfma -mf16c -mbmi2
$(BUILD)/%_avx512.syntax: ISA := -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
$(BUILD)/%.syntax: %.c Makefile
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) $(ISA) -Wno-missing-prototypes -Itests -Itests/gguf -fsyntax-only -MMD -MP -MT $@ -MF $@.d $<
	@touch $@
syntax: $(SYNTAX)
	@echo "$(words $(SYNTAX)) passed, 0 failed, 0 skipped"
.PHONY: syntax

KERN_TEXT := $(wildcard src/kern/*.cuh src/kern/*.h) src/quant/act.h src/quant/block.h \
	src/quant/codebook_table.h src/quant/codebook_data.h src/base/exactf.h
# Kernels ahead of time: clang-19 knows the AMD targets without ROCm; NVRTC (the toolkit's, or PyPI's
# nvidia-cuda-nvrtc, found through NVRTC=path/libnvrtc.so) makes machine code and PTX for NVIDIA's.
GFX := gfx906 gfx1030 gfx1031 gfx1032 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1200 gfx1201
KERN_CLANG ?= clang-19
GFX_FLAGS := -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -O3 -std=c++17 -fdeclspec \
	-fuse-cuid=none -ffp-contract=off -Wall -Wextra -Werror -DMICA_DEVICE_SOURCE=1 -Isrc
$(BUILD)/kern/gfx%.co: $(KERN_TEXT)
	@mkdir -p $(@D)
	@echo "  KERN gfx$*"
	@$(KERN_CLANG) $(GFX_FLAGS) --offload-arch=gfx$* -DWAVE=$(if $(filter 9%,$*),64,32) src/kern/all.cuh -o $@
$(BUILD)/kern/%.gz: $(BUILD)/kern/%
	@gzip -9nc $< > $@
kern-amd: $(GFX:%=$(BUILD)/kern/%.co.gz)
SM := sm_80.cubin sm_86.cubin sm_89.cubin sm_90.cubin sm_120.cubin compute_75.ptx
$(BUILD)/tools/nvrtc: tools/nvrtc.c Makefile
	@mkdir -p $(@D)
	@$(CC) -std=c17 $(WARN) -D_GNU_SOURCE $< -o $@ -ldl
$(SM:%=$(BUILD)/kern/%): $(BUILD)/kern/%: $(KERN_TEXT) $(BUILD)/tools/nvrtc
	@mkdir -p $(@D)
	@echo "  KERN $*"
	@$(BUILD)/tools/nvrtc "$(NVRTC)" $* $@ $(KERN_TEXT)
kern-cuda: $(SM:%=$(BUILD)/kern/%.gz)
kern: kern-amd
	@$(MAKE) --no-print-directory $(if $(shell $(BUILD)/tools/nvrtc --find "$(NVRTC)" 2>/dev/null),kern-cuda)
	@rm -f $(BUILD)/kern/embed.s
	@$(MAKE) --no-print-directory all
check-kern: kern-amd
	@tests/kern/kern_test.py $(BUILD)
.PHONY: kern kern-amd kern-cuda check-kern

# Device source, and the code objects that `make kern` has made of it as it is now, inside the library. Without them
# a card's kernels are compiled at first use.
# Objects are no prerequisites: a plain make must never compile kernels. Those older than their text are left out.
$(BUILD)/kern/embed.s: $(KERN_TEXT) tools/embed.sh Makefile
	@mkdir -p $(@D)
	@tools/embed.sh $@ "$(KERN_TEXT)" "$(wildcard $(BUILD)/kern/*.gz)"
$(BUILD)/kern/embed.o: $(BUILD)/kern/embed.s
	@$(CC) -c $< -o $@
LIB_OBJ += $(BUILD)/kern/embed.o

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
	@$(CC) $(SAN) -o $@ $(CLI_OBJ) $(BUILD)/libmica.a $(LIBS) $(CLI_LIBS) -pthread

$(BUILD)/tests/%: tests/%.c $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -Itests -MMD -MP $< -o $@ $(BUILD)/libmica.a -lcmocka $(LIBS)

# AVX-512 sources over emulated intrinsics: tested where no processor has them. Named first, the linker takes these.
EMU512 := $(patsubst src/quant/%.c,$(BUILD)/tests/quant/emu/%.o,$(wildcard src/quant/*_avx512.c))
$(BUILD)/tests/quant/emu/%.o: src/quant/%.c tests/quant/emu512_avx2.h Makefile
	@mkdir -p $(@D)
	@echo "  CC  $< (emulated)"
	@$(CC) $(CFLAGS_ALL) -O1 -g0 $(ISA_AVX2) -DQUANT_ROLLED -include tests/quant/emu512_avx2.h -MMD -MP -c $< -o $@
$(BUILD)/tests/quant/t_quant_emu512: tests/quant/t_quant_emu512.c $(EMU512) $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -Itests -MMD -MP $< -o $@ $(EMU512) $(BUILD)/libmica.a -lcmocka $(LIBS)

# Shared objects through which Python tests call the library (ctypes).
SHIMS := $(patsubst %.c,$(BUILD)/%.so,$(wildcard tests/*/*_shim.c))
$(BUILD)/tests/%.so: tests/%.c $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -shared -MMD -MP $< -o $@ $(BUILD)/libmica.a $(LIBS) -pthread

# Measurements of our own parts: bench/NAME_bench.c, each with the peaks of the processor beside it.
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard bench/*_bench.c))
BENCH_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard bench/peak_*.c))
$(BUILD)/bench/%_bench: bench/%_bench.c $(BENCH_OBJ) $(BUILD)/libmica.a
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Ibench -MMD -MP $< -o $@ $(BENCH_OBJ) $(BUILD)/libmica.a $(LIBS) -pthread
.SECONDARY: $(BENCH_OBJ)
bench: $(BENCHES)
.PHONY: bench

# Tests of the command see its objects too; from an archive the linker takes what a test names.
$(BUILD)/libcli.a: $(filter-out $(BUILD)/src/cli/main.o,$(CLI_OBJ))
	@rm -f $@
	@$(AR) rcs $@ $^

$(BUILD)/tests/cli/%: tests/cli/%.c $(BUILD)/libcli.a $(BUILD)/libmica.a Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) $(CFLAGS_ALL) -Wno-missing-prototypes -Itests -MMD -MP $< -o $@ $(BUILD)/libcli.a $(BUILD)/libmica.a -lcmocka $(LIBS) $(CLI_LIBS)

# Programs on the installed library, here linked with the one beside the build.
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))
$(BUILD)/examples/%: examples/%.c $(BUILD)/libmica.so Makefile
	@mkdir -p $(@D)
	@echo "  CC  $<"
	@$(CC) -std=c17 $(WARN) $(OPT) $(SAN) -Iinclude -MMD -MP $< -o $@ -L$(BUILD) -lmica -Wl,-rpath,'$$ORIGIN/..'

.PHONY: examples
examples: $(EXAMPLES)

tests: $(TESTS) $(SHIMS) $(MAINS) $(EXAMPLES)
.PHONY: tests

check: all tests
	tests/run_unit.sh $(BUILD)

lint:
	@python3 tests/lint/lint_test.py
	@python3 tests/lint/runner_test.py
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
		SAN="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" PLAIN_SIMD=1 fuzzers
	tests/fuzz/run.sh build-fuzz $(FUZZ_SECONDS)

# Everything under PREFIX; DESTDIR stands before it for packagers. LIBDIR is where the linker looks (Debian: lib/TRIPLET).
LIBDIR ?= $(PREFIX)/lib
SHARE := $(DESTDIR)$(PREFIX)/share
BASH_COMPLETION := $(SHARE)/bash-completion/completions/mica
ZSH_COMPLETION := $(SHARE)/zsh/site-functions/_mica
FISH_COMPLETION := $(SHARE)/fish/vendor_completions.d/mica.fish
MAN := $(SHARE)/man/man1/mica.1

install: all
	install -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(LIBDIR)/pkgconfig $(PREFIX)/include)
	install -d $(dir $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) $(MAN))
	install -m 755 $(BUILD)/mica $(DESTDIR)$(PREFIX)/bin/mica
	install -m 644 include/*.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(BUILD)/libmica.a $(DESTDIR)$(LIBDIR)/libmica.a
	install -m 755 $(BUILD)/libmica.so.0.$(SOMINOR) $(DESTDIR)$(LIBDIR)/libmica.so.0.$(SOMINOR)
	ln -sf libmica.so.0.$(SOMINOR) $(DESTDIR)$(LIBDIR)/libmica.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
		packaging/mica.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/mica.pc
	$(BUILD)/mica completion bash > $(BASH_COMPLETION)
	$(BUILD)/mica completion zsh > $(ZSH_COMPLETION)
	$(BUILD)/mica completion fish > $(FISH_COMPLETION)
	$(BUILD)/mica help --man > $(MAN)

.PHONY: uninstall
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/mica $(addprefix $(DESTDIR)$(PREFIX)/,$(wildcard include/*.h))
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libmica.a libmica.so libmica.so.0.$(SOMINOR) pkgconfig/mica.pc)
	rm -f $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) $(MAN)

# mica and llama.cpp in turns on the same files; builds the latter once, outside the tree.
.PHONY: peers
peers: all
	bench/peers.py

help:
	@echo 'make             build/mica and build/libmica.so'
	@echo 'make check       C tests                     make lint        the rules of the house'
	@echo 'make asan        C tests, address and undefined-behaviour sanitizers'
	@echo 'make tsan        C tests, thread sanitizer   make fuzz        FUZZ_SECONDS=60 of fuzzing'
	@echo 'make bench       kernels by themselves       make peers       beside llama.cpp'
	@echo 'make size        lines in each room'
	@echo 'make install     PREFIX=/usr/local DESTDIR=  make uninstall   takes it away again'
	@echo 'make fmt         clang-format                make fmt-check   only says what it would do'
	@echo 'Variables: CC, OPT, SAN, BUILD, CFLAGS. ./test.sh runs everything, ./setup.sh starts from nothing.'

# Tables made by a program keep their own layout.
FMT_FILES = $$(git ls-files '*.c' '*.h' ':!*_data.h')
fmt:
	clang-format -i $(FMT_FILES)

fmt-check:
	@clang-format --dry-run -Werror $(FMT_FILES)

size:
	@for r in include src/*; do [ -d $$r ] && printf '%-12s %6d\n' $$r $$(cat $$r/*.[ch] $$r/*.cuh 2>/dev/null | wc -l); done

clean:
	rm -rf build build-asan build-clang build-fuzz build-tsan

-include $(EMU512:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:=.d) $(SHIMS:.so=.d) $(MAINS:=.d) $(SYNTAX:=.d) $(FUZZERS:=.d) $(EXAMPLES:=.d)
