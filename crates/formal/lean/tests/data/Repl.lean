import Lean
public section
/-!
A REPL for tests, which speaks the protocol of the community's as far as the checker uses it: requests of one line,
`{"cmd": …, "env": …}`, each ended by a blank line; answers `{"env": …, "messages": […]}`, ended likewise; an environment for
every request, the header's included; `{"message": …}` for a request that cannot be answered.

Written for builds of Lean that interpret no code of the library's private functions.
-/
open Lean Elab

def inputOf (text : String) : Parser.InputContext :=
  { inputString := text, fileName := "<input>", fileMap := FileMap.ofString text,
    endPos := text.rawEndPos, endPos_valid := by simp }

/-- Elaborates a text: from its imports on, or over the state that an earlier one has left. -/
def process (text : String) : Option Command.State → IO Command.State
  | none => do
    let input := inputOf text
    let (header, parser, messages) ← Parser.parseHeader input
    let (env, messages) ← processHeader header {} messages input
    return (← IO.processCommands input parser (Command.mkState env messages {})).commandState
  | some state => do
    return (← IO.processCommands (inputOf text) {} { state with messages := {} }).commandState

def severityOf : MessageSeverity → String
  | .information => "info"
  | .warning => "warning"
  | .error => "error"

def positionOf (position : Position) : Json :=
  Json.mkObj [("line", toJson position.line), ("column", toJson position.column)]

def messagesOf : List Message → Array Json → IO (Array Json)
  | [], out => return out
  | message :: rest, out => do
    let stop := match message.endPos with
      | some position => positionOf position
      | none => Json.null
    let data ← message.data.toString
    messagesOf rest (out.push (Json.mkObj [("pos", positionOf message.pos), ("endPos", stop),
      ("severity", Json.str (severityOf message.severity)), ("data", Json.str data)]))

def say (answer : Json) : IO Unit := do
  let out ← IO.getStdout
  out.putStr (answer.compress ++ "\n\n")
  out.flush

def refuse (states : Array Command.State) (why : String) : IO (Array Command.State) := do
  say (Json.mkObj [("message", Json.str why)])
  return states

def run (states : Array Command.State) (text : String) (before : Option Command.State) : IO (Array Command.State) := do
  let state ← process text before
  let messages ← messagesOf state.messages.toList #[]
  let env := ("env", toJson states.size)
  say (Json.mkObj (if messages.size == 0 then [env] else [env, ("messages", Json.arr messages)]))
  return states.push state

def answer (states : Array Command.State) (request : String) : IO (Array Command.State) :=
  match Json.parse request with
  | .error why => refuse states s!"Could not parse JSON: {why}"
  | .ok json =>
    match json.getObjValAs? String "cmd", json.getObjValAs? Nat "env" with
    | .error why, _ => refuse states s!"Could not parse as a valid JSON command: {why}"
    | .ok text, .error _ => run states text none
    | .ok text, .ok env =>
      match states[env]? with
      | some state => run states text (some state)
      | none => refuse states "Unknown environment."

partial def serve (states : Array Command.State) : IO Unit := do
  let line ← (← IO.getStdin).getLine
  if line.isEmpty then return
  if line == "\n" then serve states else serve (← answer states line)

unsafe def main (_ : List String) : IO UInt32 := do
  enableInitializersExecution
  serve #[]
  return 0
