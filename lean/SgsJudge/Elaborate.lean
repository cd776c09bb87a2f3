import SgsJudge.Term

/-!
Elaborating a model's text: over the header's environment, every candidate by itself, and collecting what its theorem
rests on beyond the header. Nothing that is found here is believed: the kernel decides (`Replay`).
-/

namespace SgsJudge
open Lean Elab

/-- One proof that is to be judged. The texts are the parent's, with the model's in their places. -/
structure Candidate where
  /-- The statement as an axiom, in the namespace that the theorem stands in. -/
  pinned : String
  /-- That axiom's name. -/
  pinnedName : Name
  /-- Helpers and the theorem with its proof; empty where they are read as declarations. -/
  text : String
  /-- The theorem's name as it is declared. -/
  target : Name
  /-- File of the declarations: written by `check`, read by `replay`; none if empty. -/
  declarations : String

/-- What one process is asked. -/
structure Request where
  /-- Where its answers go. -/
  out : String → IO Unit
  /-- Stands in every line of the answer; the model's text never sees it. -/
  nonce : String
  /-- Import commands. -/
  header : String
  /-- Modules that must be there after the header. -/
  imports : List Name
  /-- Commands after the imports that belong to the problem: `open`, `set_option`. -/
  context : String
  candidates : Array Candidate

private def field (json : Json) (key : String) : Except String String :=
  json.getObjValAs? String key

/-- Reads hundreds of things. An interpreter uses stack for every call that is not over: this one calls itself last. -/
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

/-- Options that do not depend on the model: no parallel elaboration (a declaration is there when it is checked). -/
def baseOptions : Options :=
  ({} : Options).setBool `Elab.async false

/-- A text to be parsed. In two ways, because `Parser.mkInputContext` is there in every version, and newer ones that
bring no code of private functions can interpret only the first. -/
def inputContext (text : String) : Parser.InputContext := by
  first
  | exact { inputString := text, fileName := "<text>", fileMap := FileMap.ofString text,
            endPos := text.rawEndPos, endPos_valid := by simp }
  | exact Parser.mkInputContext text "<text>"

/-- A name as Lean writes it, without quotation marks. -/
partial def showName : Name → String
  | .anonymous => ""
  | .str .anonymous s => s
  | .str p s => showName p ++ "." ++ s
  | .num p k => showName p ++ "." ++ toString k

/-- Elaborates commands from a state; the new state, with the messages of these commands alone, and the commands. -/
def runText (text : String) (state : Command.State) : IO (Command.State × Array Syntax) := do
  let final ← IO.processCommands (inputContext text) {} { state with messages := {} }
  return (final.commandState, final.commands)

def runCommands (text : String) (state : Command.State) : IO Command.State := do
  return (← runText text state).1

/-- What a candidate's text may hold by Lean's own grammar: the namespace that it stands in, and theorems. -/
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

/-- The first command that a candidate's text may not hold. -/
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

/-- The state after imports and context, or why they do not stand. -/
def loadHeader (request : Request) : IO (Except String Command.State) := do
  let input := inputContext request.header
  let (syntaxTree, _, messages) ← Parser.parseHeader input
  let (env, messages) ← processHeader syntaxTree baseOptions messages input
  -- A header that fails gives an empty environment and no exception.
  if let some error ← firstError messages.toList then return .error error
  if let some name := notImported env request.imports then return .error s!"`{showName name}` is not imported"
  let state ← runCommands request.context (Command.mkState env {} baseOptions)
  if let some error ← firstError state.messages.toList then return .error error
  return .ok state

/-- What a theorem rests on beyond the header: declarations in the order of dependence, and axioms. -/
structure Collected where
  seen : NameSet := {}
  declarations : Array Read := #[]
  axioms : List Name := []

/-- Collects `name` and what it needs that `base` does not have.

Structures of projections are not looked for: a term of a structure has a type that names it, and a structure that
is not the header's is refused. -/
partial def collect (base final : Environment) (name : Name) : StateT Collected (Except String) Unit := do
  if (← get).seen.contains name || base.contains name then return
  modify fun c => { c with seen := c.seen.insert name }
  let some info := final.find? name | throw s!"`{showName name}` is not there"
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
  /-- What the type needs beyond the header: functions that a `match` in it became, and the like. -/
  declarations : List Read

def isIn (name : Name) : List Name → Bool
  | [] => false
  | other :: rest => name == other || isIn name rest

/-- Elaborates the pinned statement over the header. What its type needs gets names of its own: the theorem's own
elaboration makes the like, and may call them the same. -/
def pin (state : Command.State) (candidate : Candidate) : IO (Except String Pinned) := do
  let final ← runCommands candidate.pinned state
  if let some error ← firstError final.messages.toList then return .error s!"the statement does not stand: {error}"
  let some info := final.env.find? candidate.pinnedName | return .error "the statement is not there"
  match (forEach (collect state.env final.env) info.type.getUsedConstants.toList).run {} with
  | .error reason => return .error s!"the statement: {reason}"
  | .ok (_, found) =>
    if let _ :: _ := found.axioms then return .error "the statement rests on axioms of its own"
    let declarations := found.declarations.toList
    let own := mapList (·.name) declarations
    let renamed (e : Expr) : Expr := e.replace fun
      | .const n ls => if isIn n own then some (.const (candidate.pinnedName ++ n) ls) else none
      | _ => none
    let renamedRead (d : Read) : Read :=
      { d with name := candidate.pinnedName ++ d.name, type := renamed d.type, value := renamed d.value }
    return .ok { levels := info.levelParams, type := renamed info.type, declarations := mapList renamedRead declarations }

end SgsJudge
