import SgsJudge
open Lean

/-- Reads requests from standard input, one per line, and writes the answers to standard output. A process that
`replays` serves requests until its input ends. Any other process serves one request. -/
partial def serveLines (replays : Bool) (write : String → IO Unit) (known : SgsJudge.Loaded := none) : IO Unit := do
  let line ← (← IO.getStdin).getLine
  if line.isEmpty then return
  let known ← SgsJudge.serve replays (← IO.ofExcept (SgsJudge.Request.read write line)) known
  if replays then serveLines replays write known

/-- Runs `sgs-judge check` or `sgs-judge replay`. -/
unsafe def main (args : List String) : IO UInt32 := do
  let replays ← match args with
    | ["check"] => pure false
    | ["replay"] => pure true
    | _ =>
      IO.eprintln "usage: sgs-judge check | sgs-judge replay"
      return 2
  initSearchPath (← findSysroot)
  enableInitializersExecution
  let out ← IO.getStdout
  serveLines replays fun line => do
    out.putStr line
    out.flush
  return 0
