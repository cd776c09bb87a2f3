import SgsJudge.Term

/-!
Elaboration of a model's text. Every candidate is elaborated separately over the header's environment, and the
declarations that its theorem depends on beyond the header are collected. Nothing here is trusted: the kernel decides
(`Replay`).
-/

namespace SgsJudge
open Lean Elab

/-- A proof to be judged. The parent process writes the texts and embeds those of the model. -/
structure Candidate where
  /-- The statement as an axiom, in the namespace of the theorem. -/
  pinned : String
  /-- That axiom's name. -/
  pinnedName : Name
  /-- Helpers and the theorem with its proof; empty if they are read as declarations. -/
  text : String
  /-- The theorem's full name. -/
  target : Name
  /-- File of the declarations, written by `check` and read by `replay`; empty for none. -/
  declarations : String

/-- A request to a process. -/
structure Request where
  /-- Writes the answers. -/
  out : String → IO Unit
  /-- Part of every line of the answer. The model's text cannot know it. -/
  nonce : String
  /-- Import commands. -/
  header : String
  /-- Modules that must be imported after the header. -/
  imports : List Name
  /-- Commands of the problem after the imports: `open`, `set_option`, definitions. -/
  context : String
  candidates : Array Candidate

private def field (json : Json) (key : String) : Except String String :=
  json.getObjValAs? String key

/-- Reads a list. Tail-recursive, because an interpreter uses stack for every active call. -/
private def list {α : Type} (read : Json → Except String α) (found : Array α) : List Json → Except String (Array α)
  | [] => .ok found
  | j :: rest =>
    match read j with
    | .ok x => list read (found.push x) rest
    | .error reason => .error reason

private def readCandidate (json : Json) : Except String Candidate := do
  let pinnedName ← field json "pinned_name"
  let target ← field json "target"
  return {
    pinned := ← field json "pinned", pinnedName := pinnedName.toName
    text := ← field json "text", target := target.toName
    declarations := ← field json "declarations" }

private def readName (json : Json) : Except String Name := do
  let text ← json.getStr?
  return text.toName

def Request.read (out : String → IO Unit) (line : String) : Except String Request := do
  let json ← Json.parse line
  let imports ← (← json.getObjVal? "imports").getArr?
  let candidates ← (← json.getObjVal? "candidates").getArr?
  return { out, nonce := ← field json "nonce", header := ← field json "header", imports := (← list readName #[] imports.toList).toList
           context := ← field json "context", candidates := ← list readCandidate #[] candidates.toList }

/-- Options of every elaboration: no parallelism, so that every declaration exists when it is checked. -/
def baseOptions : Options :=
  ({} : Options).setBool `Elab.async false

/-- A text to be parsed. Two definitions, because every version has `Parser.mkInputContext`, but newer versions without the
code of private functions can interpret only the first definition. -/
def inputContext (text : String) : Parser.InputContext := by
  first
  | exact { inputString := text, fileName := "<text>", fileMap := FileMap.ofString text,
            endPos := text.rawEndPos, endPos_valid := by simp }
  | exact Parser.mkInputContext text "<text>"

/-- A name without quotation marks. -/
partial def showName : Name → String
  | .anonymous => ""
  | .str .anonymous s => s
  | .str p s => showName p ++ "." ++ s
  | .num p k => showName p ++ "." ++ toString k

/-- Elaborates commands from a state. Returns the new state, with the messages of these commands only, and the commands. -/
def runText (text : String) (state : Command.State) : IO (Command.State × Array Syntax) := do
  let final ← IO.processCommands (inputContext text) {} { state with messages := {} }
  return (final.commandState, final.commands)

def runCommands (text : String) (state : Command.State) : IO Command.State := do
  return (← runText text state).1

/-- Whether a candidate's text may contain a command, by Lean's own grammar: its namespace, or a theorem. -/
def isOwn (command : Syntax) : Bool :=
  match command.getKind with
  | .str (.str (.str (.str .anonymous "Lean") "Parser") "Command") kind =>
    match kind with
    | "namespace" | "eoi" => true
    | "declaration" => (command.getArg 1).getKind == ``Parser.Command.theorem
    | _ => false
  -- Mathlib's.
  | .str .anonymous "lemma" => true
  | _ => false

/-- The kind of the first command that a candidate's text must not contain; empty if there is none. -/
def foreign : List Syntax → String
  | [] => ""
  | command :: rest => if isOwn command then foreign rest else showName command.getKind

/-- The first error among messages. -/
def firstError : List Message → IO (Option String)
  | [] => return none
  | message :: rest =>
    if message.severity matches .error then return some (← message.data.toString) else firstError rest

private def notImported (env : Environment) : List Name → Option Name
  | [] => none
  | name :: rest => if (env.getModuleIdx? name).isSome then notImported env rest else some name

/-- A loaded header. -/
structure Header where
  /-- The environment after the imports alone. -/
  imported : Environment
  /-- The state after the imports and the context. -/
  state : Command.State

/-- Loads the imports and then the context of a request. The error is the first error of either. -/
def loadHeader (request : Request) : IO (Except String Header) := do
  let input := inputContext request.header
  let (syntaxTree, _, messages) ← Parser.parseHeader input
  let (env, messages) ← processHeader syntaxTree baseOptions messages input
  -- A header that fails gives an empty environment and no exception.
  if let some error ← firstError messages.toList then return .error error
  if let some name := notImported env request.imports then return .error s!"`{showName name}` is not imported"
  let state ← runCommands request.context (Command.mkState env {} baseOptions)
  if let some error ← firstError state.messages.toList then return .error error
  return .ok { imported := env, state }

/-- The dependencies of a theorem beyond the header: declarations in the order of dependence, and axioms. -/
structure Collected where
  seen : NameSet := {}
  declarations : Array Read := #[]
  axioms : List Name := []

/-- Collects `name` and its dependencies that are not in `base`.

The structures of projections are not visited: the type of a term of a structure names the structure, and structures
outside of the header are refused. -/
partial def collect (base final : Environment) (name : Name) : StateT Collected (Except String) Unit := do
  if (← get).seen.contains name || base.contains name then return
  modify fun c => { c with seen := c.seen.insert name }
  let some info := final.find? name | throw s!"`{showName name}` does not exist"
  if info.isUnsafe || info.isPartial then throw s!"`{showName name}` is unsafe or partial"
  let push (kind : String) (value : Expr) (hints : ReducibilityHints) : StateT Collected (Except String) Unit := do
    forEach (collect base final) info.type.getUsedConstants.toList
    forEach (collect base final) value.getUsedConstants.toList
    let declaration := { kind, name, levels := info.levelParams, type := info.type, value, hints : Read }
    modify fun c => { c with declarations := c.declarations.push declaration }
  match info with
  | .thmInfo i => push "thm" i.value .opaque
  | .defnInfo i => push "def" i.value i.hints
  | .opaqueInfo i => push "opaque" i.value .opaque
  | .axiomInfo _ => modify fun c => { c with axioms := name :: c.axioms }
  | _ => throw s!"`{showName name}` is neither theorem nor definition"

/-- A pinned statement. -/
structure Pinned where
  levels : List Name
  type : Expr
  /-- Dependencies of the type beyond the header, such as the functions that a `match` in it generates. -/
  declarations : List Read

def isIn (name : Name) : List Name → Bool
  | [] => false
  | other :: rest => name == other || isIn name rest

/-- Elaborates the pinned statement over the header. Generated dependencies of its type are renamed, because the elaboration
of the theorem may generate declarations with the same names. -/
def pin (state : Command.State) (candidate : Candidate) : IO (Except String Pinned) := do
  let final ← runCommands candidate.pinned state
  if let some error ← firstError final.messages.toList then return .error s!"the statement cannot be elaborated: {error}"
  let some info := final.env.find? candidate.pinnedName | return .error "the statement was not declared"
  match (forEach (collect state.env final.env) info.type.getUsedConstants.toList).run {} with
  | .error reason => return .error s!"the statement: {reason}"
  | .ok (_, found) =>
    if let _ :: _ := found.axioms then return .error "the statement depends on axioms of its text"
    let declarations := found.declarations.toList
    let own := mapList (·.name) declarations
    let renamed (e : Expr) : Expr := e.replace fun
      | .const n ls => if isIn n own then some (.const (candidate.pinnedName ++ n) ls) else none
      | _ => none
    let renamedRead (d : Read) : Read :=
      { d with name := candidate.pinnedName ++ d.name, type := renamed d.type, value := renamed d.value }
    return .ok { levels := info.levelParams, type := renamed info.type, declarations := mapList renamedRead declarations }

end SgsJudge
