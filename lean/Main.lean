import SgsJudge
open Lean

/-- `sgs-judge check` and `sgs-judge replay`: read a request from standard input and write answers to standard output. -/
unsafe def main (args : List String) : IO UInt32 := do
  let replaying ← match args with
    | ["check"] => pure false
    | ["replay"] => pure true
    | _ =>
      IO.eprintln "usage: sgs-judge check | sgs-judge replay"
      return 2
  initSearchPath (← findSysroot)
  enableInitializersExecution
  let out ← IO.getStdout
  let write (line : String) : IO Unit := do
    out.putStr line
    out.flush
  let _ ← SgsJudge.serve replaying (← IO.ofExcept (SgsJudge.Request.read write (← (← IO.getStdin).getLine)))
  return 0
