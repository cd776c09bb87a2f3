import SgsJudge.Term

/-!
The process that runs a model's code: elaborates the whole text over the header and writes down what the theorem
needs beyond the header. Nothing that it says is believed; `Replay` decides.
-/

namespace SgsJudge
open Lean Elab

/-- What is to be judged; the file is the parent's. -/
structure Request where
  /-- Imports. -/
  header : String
  /-- Commands after the imports that belong to the problem: `open`, `set_option`. -/
  context : String
  /-- The pinned statement as an axiom with the name `sgs_pinned`. -/
  pinned : String
  /-- Helpers and the theorem with its proof. -/
  text : String
  /-- The theorem's name as it is declared. -/
  target : Name

def Request.read (path : System.FilePath) : IO Request := do
  let json ← IO.ofExcept (Json.parse (← IO.FS.readFile path))
  let field (key : String) : IO String := IO.ofExcept (json.getObjValAs? String key)
  return {
    header := ← field "header", context := ← field "context", pinned := ← field "pinned", text := ← field "text"
    target := (← field "target").toName }

/-- Options that do not depend on the model: no parallel elaboration (a declaration is there when it is checked). -/
def baseOptions : Options :=
  ({} : Options).setBool `Elab.async false |>.setBool `autoImplicit false

/-- The environment of the imports. -/
unsafe def loadHeader (header : String) : IO Command.State := do
  initSearchPath (← findSysroot)
  enableInitializersExecution
  let input := Parser.mkInputContext header "<header>"
  let (syntaxTree, _, messages) ← Parser.parseHeader input
  let (env, messages) ← processHeader syntaxTree baseOptions messages input
  -- A header that fails gives an empty environment and no exception.
  if messages.hasErrors then throw <| IO.userError "the header does not stand"
  return Command.mkState env {} baseOptions

/-- Elaborates commands; the state after them and whether an error was reported. -/
def runCommands (text : String) (state : Command.State) : IO (Command.State × Bool) := do
  let input := Parser.mkInputContext text "<text>"
  let final ← IO.processCommands input {} state
  return (final.commandState, final.commandState.messages.hasErrors)

/-- The structures of all projections in an expression, which `getUsedConstants` does not report. -/
partial def projected (e : Expr) : StateM (Std.HashSet Expr × Array Name) Unit := do
  if (← get).1.contains e then return
  modify fun (seen, names) => (seen.insert e, names)
  match e with
  | .app f x => projected f; projected x
  | .lam _ t b _ | .forallE _ t b _ => projected t; projected b
  | .letE _ t v b _ => projected t; projected v; projected b
  | .mdata _ e => projected e
  | .proj s _ e =>
    modify fun (seen, names) => (seen, names.push s)
    projected e
  | _ => return

/-- Names that an expression uses, the structures of its projections included. -/
def usedNames (e : Expr) : Array Name :=
  e.getUsedConstants ++ ((projected e).run ({}, #[])).2.2

/-- Writes what `name` needs and `base` does not have, in the order of dependence. -/
partial def writeConstant (base final : Environment) (name : Name) : StateT NameSet WriterM Unit := do
  if (← get).contains name || base.contains name then return
  modify (·.insert name)
  let some info := final.find? name | throw s!"{name} is not there"
  if info.isUnsafe || info.isPartial then throw s!"{name} is unsafe or partial"
  let write (kind : String) (value : Expr) : StateT NameSet WriterM Unit := do
    for used in usedNames info.type ++ usedNames value do
      writeConstant base final used
    writeDeclaration kind name info.levelParams info.type value
  match info with
  | .thmInfo i => write "thm" i.value
  | .defnInfo i => write "def" i.value
  | .opaqueInfo i => write "opaque" i.value
  | .axiomInfo _ => throw s!"{name} is an axiom"
  | _ => throw s!"{name} is neither theorem nor definition"

unsafe def elaborate (request out : System.FilePath) : IO UInt32 := do
  let request ← Request.read request
  let base ← loadHeader request.header
  let (state, errors) ← runCommands (request.context ++ "\n" ++ request.text) base
  if errors then
    IO.eprintln "the text has errors"
    return 1
  match (writeConstant base.env state.env request.target).run {} |>.run {} with
  | .error message =>
    IO.eprintln message
    return 1
  | .ok (_, writer) =>
    IO.FS.writeFile out ("\n".intercalate writer.lines.toList ++ "\n")
    return 0

end SgsJudge
