import SgsJudge.Syntax

/-!
Elaborates a model's text after it was examined (`Syntax`). Every candidate is elaborated separately over the header's
environment. The declarations that its theorem depends on beyond the header are collected. Nothing here is trusted: the
kernel decides (`Replay`).
-/

namespace SgsJudge
open Lean Elab

/-- A proof to be judged. The parent process has parsed none of the texts. -/
structure Candidate where
  /-- Suffix of the names that we generate. -/
  id : String
  /-- The theorem up to `:= by`. -/
  statement : String
  /-- Theorems before the theorem. -/
  helpers : String
  /-- The text after `:= by`. -/
  proof : String
  /-- File of the declarations. `check` writes it and `replay` reads it. Empty for none. -/
  declarations : String

/-- A request to a process. -/
structure Request where
  /-- Writes the answers. -/
  out : String → IO Unit
  /-- Secret token in every line of the answer. The model's text cannot know it. -/
  nonce : String
  /-- Whether texts are examined before they are elaborated. Only tests of the other layers disable it. -/
  examines : Bool
  /-- The text before the theorem: imports, `open`, `set_option`, definitions. -/
  header : String
  /-- Our own commands after the imports. -/
  opening : String
  /-- Our own commands after the header. -/
  settings : String
  candidates : Array Candidate

private def field (json : Json) (key : String) : Except String String :=
  json.getObjValAs? String key

/-- Reads a list. The function is tail-recursive, because an interpreter uses stack space for every active call. -/
private def list {α : Type} (read : Json → Except String α) (found : Array α) : List Json → Except String (Array α)
  | [] => .ok found
  | j :: rest =>
    match read j with
    | .ok x => list read (found.push x) rest
    | .error reason => .error reason

private def readCandidate (json : Json) : Except String Candidate := do
  return {
    id := ← field json "id", statement := ← field json "statement", helpers := ← field json "helpers"
    proof := ← field json "proof", declarations := ← field json "declarations" }

def Request.read (out : String → IO Unit) (line : String) : Except String Request := do
  let json ← Json.parse line
  let candidates ← (← json.getObjVal? "candidates").getArr?
  let examines ← (← json.getObjVal? "examines").getBool?
  return { out, nonce := ← field json "nonce", examines, header := ← field json "header", opening := ← field json "opening"
           settings := ← field json "settings", candidates := ← list readCandidate #[] candidates.toList }

/-- Options of every elaboration. Parallel elaboration is off, so that every declaration exists when it is checked. -/
def baseOptions : Options :=
  ({} : Options).setBool `Elab.async false

/-- Returns the first error among the messages, if there is one. -/
def firstError : List Message → IO (Option String)
  | [] => return none
  | message :: rest =>
    if message.severity matches .error then return some (← message.data.toString) else firstError rest

/-- Elaborates each command of a text as soon as it is parsed, without examining it. Used for our own text and for
tests. -/
def runCommands (text : String) (state : Command.State) : IO Command.State := do
  return (← IO.processCommands (inputContext text) {} { state with messages := {} }).commandState

/-- Whether a command failed or left something unproved. Nothing after such a command may be elaborated, because Lean
also declares a theorem that it could not prove. -/
def failed (messages : MessageLog) : Bool :=
  messages.hasErrors || messages.toList.any (·.data.hasTag (· == `hasSorry))

/-- Parses a text. Messages of the parser are returned as errors. If there are none, the whole text was parsed. -/
def parsed (text : String) (state : Command.State) : Except MessageLog (Array Syntax) :=
  let { commands, messages } := parse text state
  if messages.hasErrors then .error messages else .ok commands

/-- Examines commands that were parsed in the given state. The error names what they must not contain. -/
def examine (role : Role) (commands : Array Syntax) (state : Command.State) : IO (Except String Unit) := do
  let all : WalkM Unit := do
    commands.forM admit
    checkTogether
  match (← runFrontend "" state (Frontend.runCommandElabM (all.run { role, hidden := Hidden.of state.env }).run)).1 with
  | .error what => return .error what
  | .ok _ => return .ok ()

/-- Tag of the message that a text has defined a constant of type `Lean.Syntax`. -/
def definesSyntax : Name := `SgsJudge.definesSyntax

/-- Adds an error unless the constants that a text has defined may exist while more of it is elaborated. -/
private def withoutSyntax (state : Command.State) : Command.State :=
  match definedSyntax state.env with
  | none => state
  | some name =>
    let data := .tagged definesSyntax s!"`{showName name}` is a definition of type `Lean.Syntax`, which Lean could run as a tactic"
    { state with messages := state.messages.add { fileName := "<text>", pos := ⟨1, 0⟩, data } }

/-- Elaborates parsed commands up to the first that fails. Returns the new state, with the messages of these commands only. -/
def elaborate (text : String) (state : Command.State) (commands : Array Syntax) : IO Command.State := do
  let act : Frontend.FrontendM Unit := do
    for command in commands do
      unless failed (← get).commandState.messages do
        Frontend.elabCommandAtFrontend command
        modify fun s => { s with commandState := withoutSyntax s.commandState }
  return (← runFrontend text { state with messages := {} } act).2

/-- The reason why a header cannot be used. -/
structure Broken where
  reason : String
  /-- Whether the header contains something that it must not contain. -/
  refused : Bool := false

/-- Whether a command declares a notation. -/
private partial def declaresNotation (stx : Syntax) : Bool :=
  let kind := stx.getKind
  notations.contains kind ||
    ([``Parser.Command.in, ``Parser.Command.mutual, `null].contains kind && stx.getArgs.any declaresNotation)

/-- A constant among those that code refers to, in any number of steps, that is neither part of the library nor new since
`before`. Theorems are no code. Lean may use a function again that it generated for a `match` with the same patterns. -/
private partial def foreign (before env : Environment) (seen : NameSet) : List Name → Option Name
  | [] => none
  | name :: todo =>
    if seen.contains name || isImported env name then foreign before env seen todo
    else match env.constants.find? name with
    | some (.thmInfo _) => foreign before env seen todo
    | some (.defnInfo info) =>
      if before.contains name && !Meta.isMatcherCore env name then some name
      else
        let used := append info.type.getUsedConstants.toList info.value.getUsedConstants.toList
        foreign before env (seen.insert name) (append used todo)
    | _ => some name

/-- Tag of the message that a notation is refused. -/
private def foreignCode : Name := `SgsJudge.foreignCode

/-- Lets no attribute be applied to code that refers to a constant of the header. Lean applies an attribute to the code that
it generates for a notation, and then evaluates this code. -/
private def guardAttributes (env : Environment) : Environment :=
  let state := attributeExtension.getState env
  let guarded (impl : AttributeImpl) : AttributeImpl := { impl with
    add := fun decl stx kind => do
      let now ← getEnv
      if now.contains decl then
        if let some name := foreign env now {} [decl] then
          throwError MessageData.tagged foreignCode s!"the code of a notation, which refers to `{showName name}`"
      impl.add decl stx kind }
  let map := state.map.fold (fun map name impl => map.insert name (guarded impl)) state.map
  attributeExtension.setState env { state with map }

/-- Replaces the state of an extension by that of another environment. -/
private def copyState {α β σ : Type} [Inhabited σ] (ext : PersistentEnvExtension α β σ) (source target : Environment) :
    Environment :=
  ext.setState target (ext.getState source)

/-- Replaces the instances by those of another environment. -/
private def copyInstances (source target : Environment) : Environment :=
  copyState Meta.defaultInstanceExtension source (copyState Meta.instanceExtension.ext source target)

/-- Elaborates a command of a header. The code that Lean generates for a notation is elaborated with the instances of the
library alone: Lean replaces coercions by their definitions, so code of the header could become a part of it unnoticed. -/
private def elaborateInHeader (imported : Environment) (text : String) (state : Command.State) (stx : Syntax) :
    IO Command.State := do
  unless declaresNotation stx do return ← elaborate text state #[stx]
  let before := state.env
  let after ← elaborate text { state with env := guardAttributes (copyInstances imported before) } #[stx]
  return { after with env := copyState attributeExtension before (copyInstances before after.env) }

/-- Elaborates the commands of a header one by one, because they may declare notations. Each command is examined before
it is elaborated. A header must not end a section that our commands before it began, `depth` scopes in all: the settings of
this section are needed for the candidates. -/
private partial def runHeader (imported : Environment) (depth : Nat) (text : String) (state : Command.State)
    (position : Parser.ModuleParserState) : IO (Except Broken Command.State) := do
  let (stx, position, messages) := Parser.parseCommand (inputContext text) (parserContext state) position {}
  if let some error ← firstError messages.toList then return .error { reason := error }
  if stx.getKind == ``Parser.Command.eoi then return .ok state
  match ← examine .header #[stx] state with
  | .error what => return .error { reason := s!"the header contains {what}", refused := true }
  | .ok () =>
    let before := state.env
    let state ← elaborateInHeader imported text state stx
    if let some name := definedSyntax state.env then
      return .error { reason := s!"the header contains the definition `{showName name}` of type `Lean.Syntax`", refused := true }
    if let some name := declaredInternal stx before state.env then
      return .error { reason := s!"the header contains a declaration with the name `{showName name}`", refused := true }
    if let some error ← firstError state.messages.toList then
      if state.messages.toList.any (·.data.hasTag (· == foreignCode)) then
        return .error { reason := s!"the header contains {error}", refused := true }
      return .error { reason := error }
    if failed state.messages then return .error { reason := "the header contains `sorry`", refused := true }
    if state.scopes.length < depth then
      return .error { reason := "the header contains an `end` without a section", refused := true }
    runHeader imported depth text state position

private def notImported (env : Environment) : List Name → Option Name
  | [] => none
  | name :: rest => if (env.getModuleIdx? name).isSome then notImported env rest else some name

/-- A loaded header. -/
structure Header where
  /-- The environment after the imports alone. -/
  imported : Environment
  /-- The state after the header. -/
  state : Command.State

/-- Loads the header of a request. The error is its first error. -/
def loadHeader (request : Request) : IO (Except Broken Header) := do
  let input := inputContext request.header
  let (syntaxTree, position, messages) ← Parser.parseHeader input
  let parts : Syntax := syntaxTree
  -- The last part are the imports. With `module`, Lean would not load the proofs of the library.
  if request.examines && parts.getArgs.pop.any (!·.isNone) then
    return .error { reason := "the header contains `module` or `prelude`", refused := true }
  let (env, messages) ← processHeader syntaxTree baseOptions messages input
  -- If a header fails, Lean returns messages and an empty environment. It throws no exception.
  if let some error ← firstError messages.toList then return .error { reason := error }
  let imports := mapList (·.module) (headerToImports syntaxTree).toList
  if let some name := notImported env imports then return .error { reason := s!"`{showName name}` is not imported" }
  let start ← runCommands request.opening (Command.mkState env {} baseOptions)
  let loaded ←
    if request.examines then runHeader start.env start.scopes.length request.header start position
    else pure (.ok (← IO.processCommands input position { start with messages := {} }).commandState)
  match loaded with
  | .error broken => return .error broken
  | .ok state =>
    if let some error ← firstError state.messages.toList then return .error { reason := error }
    let state ← runCommands request.settings state
    if let some error ← firstError state.messages.toList then return .error { reason := error }
    return .ok { imported := env, state }

/-- The dependencies of a theorem beyond the header: axioms, and declarations, each after those that it depends on. -/
structure Collected where
  seen : NameSet := {}
  declarations : Array Read := #[]
  axioms : List Name := []

/-- Collects `name` and its dependencies that are not in `base`.

The structure of a projection is not visited. The type of the projected term names the structure, and structures that
are declared outside of the header are refused. -/
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

/-- A candidate whose texts were parsed and examined, and of which nothing is elaborated yet. -/
structure Prepared where
  /-- The state after the header, in the namespace of the theorem. -/
  state : Command.State
  /-- The statement, with our name and the proof `sorry`. A theorem and not an axiom, to which Lean would not add the variables
  of a header that the statement does not contain (`include`, instances). -/
  pinned : Syntax
  pinnedName : Name
  /-- The theorem's full name. -/
  target : Name
  helpers : Array Syntax := #[]
  /-- The theorem. -/
  own : Array Syntax := #[]

/-- The reason why nothing of a candidate is elaborated. -/
structure Unfit where
  reason : String
  /-- Messages of the parser. -/
  messages : MessageLog := {}
  /-- What the text must not contain; empty if it cannot be parsed. -/
  refused : String := ""

/-- Where a theorem and its pinned statement are declared. -/
private structure Place where
  /-- Our commands before both; empty for none. -/
  space : String := ""
  /-- The name of the pinned statement, as it is declared. -/
  declared : Name
  /-- Its full name. -/
  pinned : Name
  /-- The theorem's full name. -/
  target : Name

/-- Chooses the place of a theorem.

A separate namespace keeps the names of the theorem and its helpers apart from those of the library. It is opened, because
Lean looks up `n.foo` in open namespaces, but not in the current one. A dotted name opens its own namespace for statement and
proof, which a wrapping namespace would hide. The pinned statement is therefore declared in the same namespace. A name that
begins with `_root_` is declared at the root. -/
private def placeOf (id : String) (name : Name) : Place :=
  let isRooted := (components name).getLast? == some "_root_"
  if !isRooted && name.getPrefix.isAnonymous then
    let space := Name.mkSimple s!"Sgs_{id}"
    { space := s!"namespace Sgs_{id}\nopen Sgs_{id}\n", declared := `sgs_pinned, pinned := space ++ `sgs_pinned, target := space ++ name }
  else
    let own := Name.mkSimple s!"sgs_pinned_{id}"
    let full := if isRooted then name.replacePrefix `_root_ .anonymous else name
    { declared := name.getPrefix ++ own, pinned := full.getPrefix ++ own, target := full }

/-- Parses and examines a candidate's statement, and its helpers and theorem if `hasProof`. Theorems do not change how a text
is parsed. -/
def prepare (examines hasProof : Bool) (header : Command.State) (candidate : Candidate) : IO (Except Unfit Prepared) := do
  match parsed (candidate.statement ++ "\n  sorry\n") header with
  | .error messages => return .error { messages, reason := "the statement cannot be parsed" }
  | .ok commands =>
    let (template, _) ← runFrontend "" header (Frontend.runCommandElabM `(command| theorem pinned : True := by sorry))
    let stx := commands[0]?.getD .missing
    let name := stx[1][1][0]
    unless commands.size == 1 && isTheorem stx && name.isIdent && alike template.raw[1][3] stx[1][3] do
      let refused := "a statement that is not one theorem up to `:= by`"
      return .error { refused, reason := refused }
    let place := placeOf candidate.id name.getId
    let state ← runCommands place.space header
    let statement := (stx.setArg 0 template.raw[0]).setArg 1 (stx[1].setArg 1 (stx[1][1].setArg 0 (mkIdent place.declared)))
    let prepared : Prepared := { state, pinned := statement, pinnedName := place.pinned, target := place.target }
    unless examines do return .ok prepared
    if let .error refused ← examine .statement #[statement.setArg 1 (statement[1].setArg 3 mkNullNode)] state then
      return .error { refused, reason := s!"the statement contains {refused}" }
    unless hasProof do return .ok prepared
    match parsed candidate.helpers state, parsed (candidate.statement ++ candidate.proof) state with
    | .error messages, _ | _, .error messages => return .error { messages, reason := "the text cannot be parsed" }
    | .ok helpers, .ok own =>
      unless own.size == 1 do
        let refused := s!"{own.size} commands where one theorem is expected"
        return .error { refused, reason := refused }
      if let .error refused ← examine .proof (helpers ++ own) state then return .error { refused, reason := refused }
      return .ok { prepared with helpers, own }

/-- Lets pinned statements, which lack a proof, cause a warning even if the header turns warnings into errors. -/
private def withoutErrors (state : Command.State) : Command.State :=
  { state with scopes := state.scopes.map fun scope => { scope with opts := scope.opts.setBool `warningAsError false } }

/-- Elaborates the pinned statement over the header. Generated dependencies of its type are renamed, because the elaboration
of the theorem may generate declarations with the same names. -/
def pin (candidate : Candidate) (prepared : Prepared) : IO (Except String Pinned) := do
  let { state, pinned, pinnedName, .. } := prepared
  let final ← elaborate candidate.statement (withoutErrors state) #[pinned]
  if let some error ← firstError final.messages.toList then return .error s!"the statement cannot be elaborated: {error}"
  let some info := final.env.find? pinnedName | return .error "the statement was not declared"
  match (forEach (collect state.env final.env) info.type.getUsedConstants.toList).run {} with
  | .error reason => return .error s!"the statement: {reason}"
  | .ok (_, found) =>
    if let _ :: _ := found.axioms then return .error "the statement depends on axioms of its text"
    let declarations := found.declarations.toList
    let own := mapList (·.name) declarations
    let renamed (e : Expr) : Expr := e.replace fun
      | .const n ls => if isIn n own then some (.const (pinnedName ++ n) ls) else none
      | _ => none
    let renamedRead (d : Read) : Read :=
      { d with name := pinnedName ++ d.name, type := renamed d.type, value := renamed d.value }
    return .ok { levels := info.levelParams, type := renamed info.type, declarations := mapList renamedRead declarations }

end SgsJudge
