#!/usr/bin/env bash
# Runs the checks that CI cannot run, on a machine with a GPU: kernels, files, resuming, workers, the rehearsal.
#
#   scripts/gpu-checks.sh BIN OUT [PART...]
#
# BIN has the programs `sgs`, `gpu_check`, `gpu_ranks` and `rehearsal` (`cargo build --release --workspace --bins
# --examples`). OUT receives the output of each part. PART is one of kernels, resume, workers, files, speed, rehearsal; all
# by default. Their time limits add up to half an hour. $WORK is a folder for runs (default: a temporary folder). The
# rehearsal needs 53 GB there.
set -u
[ $# -ge 2 ] || { sed -n '4,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$1 out=$2 here=$(cd "$(dirname "$0")/.." && pwd)
shift 2
[ $# -gt 0 ] || set -- kernels resume workers files speed rehearsal
work=${WORK:-$(mktemp -d)} failed=
mkdir -p "$out" "$work"

# check NAME SECONDS COMMAND...: runs a command with a time limit and reports how it ended.
check() {
    local name=$1 limit=$2 code=0
    shift 2
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || code=$?
    echo "[$SECONDS s] $name: exit code $code"
    [ $code = 0 ] || { failed="$failed $name"; grep -E 'FAILED|[Ee]rror' "$out/$name.txt" | head -n 20; tail -n 5 "$out/$name.txt"; }
}

# resume BATCH ROUNDS: compares two undisturbed runs with each other, and with one that is killed twice and resumed.
resume() {
    local batch=$1 rounds=$2 folder=$work/resume-$1 name pid
    local keys=(--device cuda --seed 1 --rounds "$rounds" --set minutes=0 --set evaluation.held_out=none --set "sampling.batch=$batch")
    for name in first second; do
        check "run-$batch-$name" 120 "$bin/sgs" run "${keys[@]}" --out "$folder/$name"
    done
    "$bin/sgs" run "${keys[@]}" --out "$folder/killed" >"$out/killed-$batch.txt" 2>&1 </dev/null & pid=$!
    for round in 1 $((rounds - 2)); do
        while kill -0 $pid 2>/dev/null && [ ! -e "$folder/killed/rounds/$(printf %04d "$round")" ]; do sleep 0.05; done
        sleep 0.3
        kill -9 $pid
        wait $pid 2>/dev/null
        "$bin/sgs" resume "$folder/killed" >>"$out/killed-$batch.txt" 2>&1 </dev/null & pid=$!
    done
    wait $pid || failed="$failed resume-$batch"
    for name in second killed; do
        for file in $(cd "$folder/first" && ls rounds/*/{outcome.json,examples.parquet,conjectures.parquet,problems.parquet} checkpoints/*/*/*.safetensors); do
            cmp -s "$folder/first/$file" "$folder/$name/$file" || echo "$file"
        done >"$out/differs-$batch-$name.txt"
        # On a GPU, a sampled token may depend on the shape of the batch, which may depend on timing. With batches of
        # one, it does not.
        echo "resume, batch $batch: $(wc -l <"$out/differs-$batch-$name.txt") files of the run '$name' differ from the first"
    done
    [ "$batch" != 1 ] || [ ! -s "$out/differs-1-killed.txt" ] || failed="$failed resume-1"
}

for part in "$@"; do
    case $part in
        kernels) check kernels 300 "$bin/gpu_check" kernels vectors "$here/crates/lm/tests/data" training paged draws sampling ;;
        resume) resume 1 4 && resume 256 30 ;;
        workers)
            check workers 120 "$bin/sgs" run --device cuda --rounds 4 --set minutes=0 --set evaluation.held_out=none \
                --workers local:generate=1 --out "$work/workers"
            grep -o '"solver_log_prob_gap[a-z_]*":[^,]*' "$work/workers/metrics.jsonl"
            ;;
        files) check files 200 "$bin/gpu_ranks" files 30 curve 1 ;;
        speed) check speed 120 "$bin/gpu_check" step layer ;;
        # Use one policy (tied weights) of four layers. `--dry-run` plans 61 GB of GPU memory.
        rehearsal)
            check rehearsal 550 "$bin/rehearsal" "$work/rehearsal" --sgs "$bin/sgs" --ranks 1 --layers 4 --targets 64 \
                --check-seconds 0.5 --set algorithm.tied_weights=true --set sampling.memory_mib=8192 \
                --set lean.limits.proof_ms=5000
            cp "$work/rehearsal/rehearsal.jsonl" "$out" && tail -n 3 "$out/rehearsal.jsonl"
            ;;
        *) echo "unknown part: $part" >&2; exit 2 ;;
    esac
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "all checks passed"
