import SgsJudge.Kinds

/-!
The decision on a text before any of it is elaborated. Lean's own parser reads the text, and every node of the syntax tree
is examined. A node whose kind has an elaborator must be on the list of `Kinds`. A node that only macros expand (a notation)
is expanded, and the expansion is examined in the same way. All other nodes are parts of these.

Nothing on the list runs code of the text: no commands but theorems, no code in tactics or terms, and only literals and
constructors of the library in configurations, which Lean evaluates as compiled code.
-/

namespace SgsJudge
open Lean Elab

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

/-- Whether a text contains a word. -/
def mentions (text word : String) : Bool :=
  match text.splitOn word with
  | _ :: _ :: _ => true
  | _ => false

def components : Name → List String
  | .anonymous => []
  | .str p s => s :: components p
  | .num p _ => components p

/-- How a text is used. -/
inductive Role where
  /-- A statement: a theorem without its proof. -/
  | statement
  /-- Theorems. -/
  | proof
  /-- The text before the theorem of a problem. -/
  | header
  deriving BEq

/-- A hash of a node that ignores positions and the scopes of names. -/
partial def digest : Syntax → UInt64
  | .missing => 1
  | .atom _ word => mixHash 2 (hash word)
  | .ident _ _ name _ => mixHash 3 (hash name.eraseMacroScopes)
  | .node _ kind children => children.foldl (fun found child => mixHash found (digest child)) (hash kind)

/-- Whether two nodes are equal, except for positions and the scopes of names. -/
partial def alike : Syntax → Syntax → Bool
  | .missing, .missing => true
  | .atom _ a, .atom _ b => a == b
  | .ident _ _ a _, .ident _ _ b _ => a.eraseMacroScopes == b.eraseMacroScopes
  | .node _ kind children, .node _ other others =>
    kind == other && children.size == others.size && (children.zip others).all fun (a, b) => alike a b
  | _, _ => false

/-- Macros and elaborators of scopes that need not be open. A text can open a scope for a part of itself (`open … in`). -/
structure Hidden where
  macros : Std.HashMap Name (List Macro) := {}
  elaborators : Std.HashSet Name := {}

/-- Collects the entries of an attribute that belong to a scope. -/
private def foldScoped {γ σ : Type} (attr : KeyedDeclsAttribute γ) (env : Environment) (add : σ → Name → γ → σ) (init : σ) : σ :=
  (attr.ext.ext.getState env).scopedEntries.map.fold (init := init) fun found _ entries =>
    entries.foldl (init := found) fun found entry => add found entry.key entry.value

def Hidden.of (env : Environment) : Hidden :=
  let add {γ : Type} (found : Std.HashSet Name) (kind : Name) (_ : γ) : Std.HashSet Name := found.insert kind
  let terms := foldScoped Term.termElabAttribute env add {}
  let tactics := foldScoped Tactic.tacticElabAttribute env add terms
  { elaborators := foldScoped Command.commandElabAttribute env add tactics
    macros := foldScoped macroAttribute env (fun found kind expand => found.insert kind (expand :: found.getD kind [])) {} }

/-- What was seen of a text. -/
structure Seen where
  role : Role
  hidden : Hidden
  /-- The nodes of expansions, by digest. Equal nodes are examined once: a tactic that tries many others, such as that of an
  index `l[0]`, expands to the same ones again and again, and a macro may expand to itself. -/
  expanded : Std.HashMap UInt64 (List Syntax) := {}
  nodes : Nat := 0
  /-- Whether the text declares several things in one command, by `mutual`, `where` or `let rec`. -/
  declares : Bool := false
  /-- A search for lemmas, Aesop, or a name in a configuration. Each could evaluate what such a command declares. -/
  evaluates : Option String := none
  /-- Number of commands that may be definitions. -/
  definitions : Nat := 0
  /-- The definitions of `where` and `let rec`, each once, although the expansions of tactics repeat them. -/
  locals : List Syntax := []
  /-- Number of clauses that say why a recursion ends. Lean elaborates them when it has compiled the other definitions of
  the command. -/
  terminations : Nat := 0
  /-- Number of these clauses that belong to one of `locals`. -/
  ownTerminations : Nat := 0

abbrev WalkM := StateT Seen (ExceptT String Command.CommandElabM)

def refuse {α : Type} (what : String) : WalkM α := fun _ => ExceptT.mk (pure (.error what))

/-- Maximum number of bits of a shift. Lean evaluates shifts of numerals, and ends if its memory does not suffice. -/
def maxShift : Nat := 1 <<< 24

/-- Maximum number of nodes in a text and its expansions. -/
def maxNodes : Nat := 1000000

private def elaborators (hidden : Hidden) (env : Environment) (kind : Name) : Bool :=
  hidden.elaborators.contains kind || !(Term.termElabAttribute.getEntries env kind).isEmpty || !(Tactic.tacticElabAttribute.getEntries env kind).isEmpty ||
    !(Command.commandElabAttribute.getEntries env kind).isEmpty

/-- The expansions of a node by each of its macros. -/
private def expansions (hidden : Hidden) (stx : Syntax) : Command.CommandElabM (List Syntax) := do
  let kind := stx.getKind
  let mut found := []
  for expand in (macroAttribute.getEntries (← getEnv) kind).map (·.value) ++ hidden.macros.getD kind [] do
    try found := (← liftMacroM (expand stx)) :: found
    catch _ => pure ()
  return found

/-- Whether a constant belongs to the imported library. -/
def isImported (env : Environment) (name : Name) : Bool := (env.getModuleIdxFor? name).isSome

/-- Whether Lean gives such names to the tactics of default arguments, which are constants of type `Lean.Syntax`. -/
private def isDefaultName (part : String) : Bool := part.startsWith "_auto"

/-- A constant of type `Lean.Syntax` that a text has defined. Lean elaborates the value of such a constant as a tactic if
the type of an argument names it (`autoParam`), and no tree that could be examined contains this tactic. Those that Lean
itself made were part of the text as default arguments. -/
def definedSyntax (env : Environment) : Option Name :=
  let isDefault (name : Name) := (components name.eraseMacroScopes).head?.any isDefaultName
  let add (found : Option Name) (name : Name) (info : ConstantInfo) : Option Name :=
    if info.type.isConstOf ``Syntax && !isDefault name then some name else found
  env.constants.foldStage2 add none

/-- Parts of a name that begin like those that Lean gives to what it makes itself, such as the default value `_default` of a
field. -/
def internalParts (name : Name) : List String :=
  (components name.eraseMacroScopes).filter fun part => part.startsWith "_" && part != "_root_"

/-- Such parts of the names in a text. -/
partial def writtenParts : Syntax → List String
  | .ident _ _ name _ => internalParts name
  | .node _ _ children => children.foldl (fun found child => writtenParts child ++ found) []
  | _ => []

/-- A constant that a command has declared with such a name. The name is part of the text, or makes a definition of the header
look like a part of a constant of the library. Lean evaluates such parts, for example in configurations. Those with `_aux_`
are the code of a notation, and `checkName` refuses them in texts. -/
def declaredInternal (stx : Syntax) (before after : Environment) : Option Name :=
  let written := writtenParts stx
  let isOfLibrary (name : Name) (info : ConstantInfo) : Bool := match name, info with
    | _, .thmInfo _ => false
    | .str parent last, _ => last.startsWith "_" && !last.startsWith "_aux_" && isImported after parent
    | _, _ => false
  let add (found : Option Name) (name : Name) (info : ConstantInfo) : Option Name :=
    if found.isSome || before.contains name then found
    else if isOfLibrary name info || (internalParts name).any written.contains then some name
    else none
  after.constants.foldStage2 add none

/-- Checks a name that a text declares. -/
private def checkDeclared (name : Name) : WalkM Unit := do
  if let some part := (internalParts name).head? then refuse s!"a declaration with the name `{part}`"

/-- Checks the names that a node declares. -/
private def checkDeclaration (kind : Name) (stx : Syntax) : WalkM Unit := do
  if kind == ``Parser.Term.letRecDecl then
    if let part :: _ := writtenParts stx[2][0][0] then refuse s!"a declaration with the name `{part}`"
  if declaringNames.contains kind then
    for part in stx.getArgs do
      for name in #[part] ++ part.getArgs do
        if name.isIdent then checkDeclared name.getId

/-- Checks a name. Names with `_aux_` are those of the code of notations, parts of which are no constants: a definition with
such a name could replace one. -/
private def checkName (name : Name) : WalkM Unit := do
  for part in components name.eraseMacroScopes do
    if forbiddenNames.contains part || isDefaultName part || part.startsWith "_aux_" then refuse s!"the name `{part}`"

/-- Checks `set_option NAME VALUE`. -/
private def checkOption (stx : Syntax) : WalkM Unit := do
  let name := stx[1].getId.eraseMacroScopes
  let free := (← get).role == .header && freeInHeaders.any (·.isPrefixOf name)
  let limit := (numberOptions.find? (·.1 == name)).map (·.2)
  let isBounded := match limit, stx[3].isNatLit?, stx[2].isNatLit? with
    | some most, some n, _ | some most, none, some n => n ≤ most
    | _, _, _ => false
  unless free || isBounded || switchOptions.contains name || (`linter).isPrefixOf name do
    refuse s!"set_option {showName name}"

/-- Whether a node is part of the configuration of a tactic. -/
private def isConfiguration : Name → Bool
  | .str _ last =>
    let last := last.toLower
    last.endsWith "config" || last.endsWith "configitem" || (last.startsWith "tactic_clause" && mentions last "config")
  | _ => false

/-- Whether a node contains one of these words. -/
private partial def hasWord (words : List String) : Syntax → Bool
  | .atom _ word => words.contains word
  | .ident _ _ name _ => words.contains (showName name.eraseMacroScopes)
  | .node _ _ children => children.any (hasWord words)
  | .missing => false

/-- A number that a term computes, at most `maxShift + 1`. -/
private partial def numberOf (stx : Syntax) : Option Nat :=
  let capped (n : Nat) := min n (maxShift + 1)
  let both (act : Nat → Nat → Nat) : Option Nat := do return capped (act (← numberOf stx[0]) (← numberOf stx[2]))
  let kind := stx.getKind
  if kind == `num then stx.isNatLit?.map capped
  else if kind == ``Parser.Term.paren || kind == ``Parser.Term.typeAscription then numberOf stx[1]
  else if kind == `«term_+_» then both (· + ·)
  else if kind == `«term_*_» then both (· * ·)
  else if kind == `«term_^_» then both fun base power => if base ≤ 1 || power ≤ 24 then base ^ min power 24 else maxShift + 1
  else if kind == `«term_<<<_» then both fun n bits => if n == 0 || bits ≤ 24 then n <<< min bits 24 else maxShift + 1
  else none

/-- Whether Lean unfolds a constant wherever it looks for an instance. -/
private def isReducible (env : Environment) (name : Name) : Bool := getReducibilityStatusCore env name matches .reducible

/-- The result of a type, under its binders. -/
private partial def resultOf : Expr → Expr
  | .forallE _ _ body _ | .mdata _ body => resultOf body
  | type => type

/-- Whether a class of the library converts a term to a type of the library, so that an instance about a type of the header
can take part in a term that is not about this type. -/
private def isCoercion (name : Name) : Bool :=
  (showName name).startsWith "Coe" && name != ``CoeFun && name != ``CoeSort

/-- Whether a type has an argument in square brackets. -/
private partial def hasInstanceArgument : Expr → Bool
  | .forallE _ _ body info => info.isInstImplicit || hasInstanceArgument body
  | .mdata _ type => hasInstanceArgument type
  | _ => false

/-- The body of a term, under its binders. -/
private partial def bodyOf : Expr → Expr
  | .lam _ _ body _ | .mdata _ body => bodyOf body
  | e => e

/-- Whether a constant is an instance of a scope, which need not be open. -/
private def isScopedInstance (env : Environment) (name : Name) : Bool :=
  (Meta.instanceExtension.ext.getState env).scopedEntries.map.fold (init := false) fun found _ entries =>
    entries.foldl (init := found) fun found entry => found || entry.globalName? == some name

/-- Whether a constant of a header could be an instance by which Lean elaborates a literal or coerces it: it has a type class
of the library that is not about an inductive type of the header, or a type that could be one. -/
private def convertsLiterals (env : Environment) (info : ConstantInfo) : Bool :=
  let isProp (name : Name) := (env.find? name).any fun info => resultOf info.type matches .sort .zero
  let isNew (name : Name) := !isImported env name && (env.find? name).any (· matches .inductInfo _)
  let isNewType (type : Expr) := match type.getAppFn with
    | .const name _ => isNew name
    | _ => false
  let result := resultOf info.type
  if info matches .thmInfo _ then false
  else match result.getAppFn with
    | .sort _ => false
    -- An instance of this type could be one of any class.
    | .bvar _ => hasInstanceArgument info.type && isScopedInstance env info.name
    -- No literal is a proposition.
    | .const `Decidable _ => false
    | .const (.str type "noConfusionType") _ => !isNew type
    | .const name _ =>
      if isImported env name && isReducible env name then
        -- A name for another type, which could be that of an instance. The code of a notation has the other three.
        !([`DecidablePred, `DecidableRel, `DecidableEq, ``Macro, ``TrailingParserDescr, `Lean.PrettyPrinter.Unexpander,
          `Lean.PrettyPrinter.Delaborator.Delab].contains name)
      else if isImported env name then
        isClass env name && !isProp name && !operatorClasses.contains name &&
          (isCoercion name || !(result.getAppArgs[0]?.any isNewType))
      else (env.find? name).any (· matches .defnInfo _)
    | _ => true

/-- The constants of the header. -/
private def constantsOfHeader (env : Environment) : List ConstantInfo :=
  env.constants.foldStage2 (fun found _ info => info :: found) []

/-- Whether the constant at the head of a term, under its binders, belongs to the header and is not an abbreviation. -/
private def isOfHeader (env : Environment) (e : Expr) : Bool :=
  match (bodyOf e).getAppFn with
  | .const name _ => !isImported env name && !isReducible env name
  | _ => false

/-- Whether an instance of the header cannot be one for the library's own types: its class belongs to the header or is
about an inductive type of the header, or it decides a proposition of the header. Classes of coercions, and types that are
not those of a class until they are computed (a variable, an abbreviation), are not of this kind. -/
private def isHarmlessInstance (env : Environment) (type : Expr) : Bool :=
  let result := resultOf type
  match result.getAppFn with
  | .const name _ =>
    let isType := (env.find? name).any (· matches .inductInfo _)
    let isAbout (arg : Option Expr) := arg.any (isOfHeader env)
    -- The type of an equation is its first argument.
    let isProposition (arg : Expr) := isOfHeader env arg || isAbout (bodyOf arg).getAppArgs[0]?
    if [`Decidable, `DecidablePred, `DecidableRel, `DecidableEq].contains name then result.getAppArgs.back?.any isProposition
    else isType && isClass env name &&
      (!isImported env name || operatorClasses.contains name || (!isCoercion name && isAbout result.getAppArgs[0]?))
  | _ => false

/-- A constant of the header that could take part in the value of a configuration. -/
private def convertingInstance (env : Environment) : Option Name :=
  let converts (info : ConstantInfo) :=
    convertsLiterals env info || (Meta.isInstanceCore env info.name && !isHarmlessInstance env info.type)
  ((constantsOfHeader env).find? converts).map (·.name)

/-- Checks that no constant of the header can take part in the value of a configuration. -/
private def checkInstances : WalkM Unit := do
  if let some name := convertingInstance (← getEnv) then
    refuse s!"a configuration beside `{showName name}`, which could be an instance for it"

/-- Checks a name in a configuration: it must be that of a constructor of the library, wherever it is looked up. -/
private def checkConstructor (name : Name) (dotted : Bool) : WalkM Unit := do
  let name := name.eraseMacroScopes
  let no : WalkM Unit := refuse s!"the name `{showName name}` in a configuration"
  let env ← getEnv
  let last := (components name).head?
  -- Namespaces that the text opens could make this a name of the header.
  if (constantsOfHeader env).any fun info => (components info.name).head? == last then no
  -- Only a declaration of the text itself could replace it.
  unless name == `true || name == `false do
    modify ({ · with evaluates := s!"the name `{showName name}` in a configuration" })
  if dotted then
    unless dotConstructors.contains name do no
  else
    let found : List (Name × List String) ← (resolveGlobalName name : Command.CommandElabM _)
    if found.isEmpty then no
    -- The constructor of a structure would set its fields, such as `native`, without their names.
    let isAlternative (constant : Name) := match env.find? constant with
      | some (.ctorInfo info) => !isStructureLike env info.induct
      | _ => false
    for (constant, projections) in found do
      unless projections.isEmpty && isImported env constant && isAlternative constant do no

/-- Whether a kind belongs to a notation that a text has declared. -/
private def isNotation (env : Environment) (kind : Name) : Bool :=
  !isImported env kind && (env.find? kind).any fun info =>
    info.type.isConstOf ``ParserDescr || info.type.isConstOf ``TrailingParserDescr

/-- Checks that a term is a literal: a number, a string, a Boolean, the name of an alternative, or a structure or list of
literals. -/
private partial def checkLiteral (stx : Syntax) : WalkM Unit := do
  match stx with
  | .atom .. | .missing => return
  | .ident _ _ name _ => checkConstructor name (dotted := false)
  | .node _ kind children =>
    if isNotation (← getEnv) kind then refuse s!"the notation `{showName kind}` in a configuration"
    else if kind == ``Parser.Term.structInstLVal then
      -- A number or an index could name `native`, and the term of an index would not be examined.
      unless stx[0].isIdent && stx[1].getArgs.isEmpty do refuse "a field without a name in a configuration"
      if (components stx[0].getId).contains "native" then refuse "the configuration `native`"
    else if kind == ``Parser.Term.structInst && !stx[1].isNone then refuse "an updated structure in a configuration"
    else if kind == ``Parser.Term.structInstField && stx[1].isNone then refuse "a field without a value in a configuration"
    else if kind == ``Parser.Term.dotIdent then checkConstructor stx[1].getId (dotted := true)
    -- Anything else could be coerced to a function.
    else if kind == ``Parser.Term.app && !stx[0].isIdent && !stx[0].isOfKind ``Parser.Term.dotIdent then
      refuse "a function without a name in a configuration"
    -- The parser puts a nameless identifier beside the parenthesis of a term.
    else if kind == hygieneInfoKind && stx[0].getId.eraseMacroScopes.isAnonymous then return
    else if literalKinds.contains kind then children.forM checkLiteral
    else refuse s!"`{showName kind}` in a configuration"

/-- Checks an attribute. -/
private def checkAttribute (stx : Syntax) : WalkM Unit := do
  let allowed := match (← get).role with
    | .header => headerAttributes
    | .proof => helperAttributes
    | .statement => []
  let name := if stx.getKind == ``Parser.Attr.simple then stx[0].getId.eraseMacroScopes else stx.getKind
  unless allowed.contains name do refuse s!"the attribute `{showName name}`"

/-- Whether a node is an antiquotation (`$x`), which only code that generates syntax contains. Lean runs it as code of the
macro where a notation expands to it. -/
private def isAntiquotation : Name → Bool
  | .str _ last => last.startsWith "antiquot" || last == "token_antiquot"
  | _ => false

/-- Checks the name that a header gives to a notation: it must not be that of other syntax, because Lean would expand this
syntax like the notation, also in code that it generates. -/
private def checkNotationName (name : Name) : WalkM Unit := do
  let name := name.eraseMacroScopes
  let kind := (← (getCurrNamespace : Command.CommandElabM Name)) ++ name
  let isKnown := Parser.isValidSyntaxNodeKind (← getEnv) kind || elaborable.contains kind || literalKinds.contains kind
  if isKnown || isConfiguration kind || isAntiquotation kind || (components name).contains "_root_" then
    refuse s!"the name `{showName kind}` of a notation"

/-- Number of clauses at the end of a declaration that say why it ends. -/
private def terminationsOf (suffix : Syntax) : Nat :=
  suffix.getArgs.foldl (fun found part => found + (part.getArgs.filter (isTermination ·.getKind)).size) 0

/-- Checks the kind of a node. -/
def walkKind (kind : Name) (stx : Syntax) : WalkM Unit := do
  let role := (← get).role
  if setOptions.contains kind then checkOption stx
  checkDeclaration kind stx
  if kind == `«term_<<<_» && (numberOf stx[2]).any (· > maxShift) then refuse "a shift by so many bits"
  if declaring.contains kind then modify ({ · with declares := true })
  if kind == ``Parser.Command.mutual then modify ({ · with declares := true })
  if kind == ``Parser.Term.letRecDecl then
    let own := terminationsOf (stx.getArgs.back?.getD .missing)
    modify fun seen =>
      let locals := if seen.locals.any (alike stx) then seen.locals else stx :: seen.locals
      { seen with locals, ownTerminations := seen.ownTerminations + own }
  if kind == ``Parser.Command.declaration && role == .header then
    modify fun seen => { seen with definitions := seen.definitions + 1 }
  if isTermination kind then modify fun seen => { seen with terminations := seen.terminations + 1 }
  if searching.contains kind then modify ({ · with evaluates := s!"`{showName kind}`" })
  if kind == ``Parser.Term.letRecDecl && hasWord ["true", "false"] stx[2][0][0] then refuse "another meaning of `true` or `false`"
  if aesops.contains kind && hasWord evaluatingBuilders stx then refuse "a rule of `aesop` that is code"
  if kind == ``Parser.Term.attrInstance then checkAttribute stx[1]
  if refusedParts.contains kind && role != .header then refuse s!"`{showName kind}`"
  if role == .header && refusedInHeaders.contains kind then refuse s!"`{showName kind}`"
  if role == .header && kind == ``Parser.Command.in && !beforeInHeaders.contains stx[0].getKind then
    refuse s!"`{showName stx[0].getKind}` joined to a command with `in`"
  if kind == ``Parser.Command.namedName then checkNotationName stx[3].getId

/-- Checks the parts of a configuration: an item is not called `native`, and its value, after `:=`, is a literal. -/
partial def walkConfiguration (children : Array Syntax) : WalkM Unit := do
  let mut isValue := false
  if children.any (· matches .atom _ ":=") then checkInstances
  for child in children do
    match child with
    | .atom _ ":=" => isValue := true
    | .node _ inner grandchildren =>
      if !isValue && (isConfiguration inner || configurationParts.contains inner) then walkConfiguration grandchildren
      else checkLiteral child
    | .ident _ _ name _ =>
      if isValue then checkLiteral child
      else if (components name).contains "native" then refuse "the configuration `native`"
    | _ => pure ()

/-- Checks that a node may be elaborated. If only macros expand it, returns the expansions. -/
private def expansionsOf (kind : Name) (stx : Syntax) : WalkM (List Syntax) := do
  let role := (← get).role
  if isNotation (← getEnv) kind then
    -- Its name may be that of a kind on the lists, which the imports do not contain.
    let hidden := (← get).hidden
    let found ← expansions hidden stx
    if found.isEmpty || elaborators hidden (← getEnv) kind then refuse s!"the notation `{showName kind}`, whose meaning is not known here"
    return found
  if role == .header && headerCommands.contains kind then return []
  if (if role == .statement then elaborableInStatements else elaborable).contains kind then return []
  let hidden := (← get).hidden
  if elaborators hidden (← getEnv) kind then refuse s!"`{showName kind}`"
  expansions hidden stx

/-- Nodes to examine, each with whether it is part of an expansion. -/
abbrev Pending := Array (Syntax × Bool)

/-- Examines a node. Adds the nodes to examine next: its children, and its expansions. -/
private def examineNode (stx : Syntax) (isExpanded : Bool) (next : Pending) : WalkM Pending := do
  match stx with
  | .missing => refuse "a text that was not parsed"
  | .atom .. => return next
  | .ident _ _ name _ =>
    checkName name
    return next
  | .node _ kind children =>
    let seen ← get
    let digest := if isExpanded then digest stx else 0
    let equals := if isExpanded then seen.expanded.getD digest [] else []
    if equals.any (alike stx) then return next
    if seen.nodes ≥ maxNodes then refuse "too many nodes"
    let expanded := if isExpanded then seen.expanded.insert digest (stx :: equals) else seen.expanded
    set { seen with nodes := seen.nodes + 1, expanded }
    if isAntiquotation kind then refuse "an antiquotation"
    if isConfiguration kind && kind != ``Parser.Tactic.optConfig && !isNotation (← getEnv) kind then
      if elaborators (← get).hidden (← getEnv) kind && !elaborable.contains kind then refuse s!"`{showName kind}`"
      walkConfiguration children
      return next
    walkKind kind stx
    let next := children.foldl (fun next child => next.push (child, isExpanded)) next
    return (← expansionsOf kind stx).foldl (fun next expansion => next.push (expansion, true)) next

/-- Examines the nodes from `first` to before `last`. It splits the range in halves, because an interpreter uses stack for
every active call. -/
private partial def examineNodes (nodes : Pending) (first last : Nat) (next : Pending) : WalkM Pending := do
  if last ≤ first then return next
  if last == first + 1 then
    match nodes[first]? with
    | some (stx, isExpanded) => examineNode stx isExpanded next
    | none => return next
  else
    let middle := (first + last) / 2
    let next ← examineNodes nodes first middle next
    examineNodes nodes middle last next

/-- Examines nodes and everything below them, level by level: a recursion into each node would need more stack than an
interpreter has. -/
partial def walk (nodes : Pending) : WalkM Unit := do
  unless nodes.isEmpty do walk (← examineNodes nodes 0 nodes.size #[])

/-- The kind of a command; of a declaration, the kind of what it declares. -/
private def commandKind (stx : Syntax) : Name :=
  if stx.isOfKind ``Parser.Command.declaration then stx[1].getKind else stx.getKind

def isTheorem (stx : Syntax) : Bool := [``Parser.Command.theorem, `lemma].contains (commandKind stx)

/-- Whether a command may be part of a text of this role. -/
private def mayCommand (role : Role) (stx : Syntax) : Bool :=
  match role with
  | .statement | .proof => isTheorem stx
  | .header =>
    let kind := stx.getKind
    headerCommands.contains kind && (kind != ``Parser.Command.declaration || headerDeclarations.contains (commandKind stx))

/-- Examines a command that contains no other command. -/
private def admitOne (stx : Syntax) : WalkM Unit := do
  let kind := stx.getKind
  unless mayCommand (← get).role stx do
    refuse s!"the command `{showName (commandKind stx)}`"
  walkKind kind stx
  walk (stx.getArgs.map (·, false))

/-- Examines a command. The error names what it must not contain. -/
partial def admit (stx : Syntax) : WalkM Unit := do
  let kind := stx.getKind
  if kind == ``Parser.Command.in && (← get).role == .proof && beforeHelpers.contains stx[0].getKind then
    walkKind stx[0].getKind stx[0]
    walk (stx[0].getArgs.map (·, false))
    return ← admit stx[2]
  if kind == ``Parser.Command.mutual && (← get).role == .proof then
    -- Lean elaborates the members after one that fails, as with `where`.
    walkKind kind stx
    walk ((stx.setArg 1 mkNullNode).getArgs.map (·, false))
    return ← stx[1].getArgs.forM admitOne
  admitOne stx

/-- Refuses what is harmless alone: a text whose tactics could find, and evaluate, what it declares within a command. -/
def checkTogether : WalkM Unit := do
  let seen ← get
  if seen.declares then
    if let some what := seen.evaluates then refuse s!"{what} beside `mutual`, `where` or `let rec`"
  let isAlone := match seen.definitions, seen.locals with
    | 0, [] | 1, [] => true
    | 0, [_] => seen.ownTerminations == seen.terminations
    | _, _ => false
  unless seen.terminations == 0 || isAlone do
    refuse "a proof of termination beside another definition (`where`, `let rec` or `mutual`)"

/-- A text that was parsed, with the messages of the parser. -/
structure Parsed where
  commands : Array Syntax := #[]
  messages : MessageLog := {}

/-- Parses commands from a position, without elaborating any. -/
private partial def parseFrom (input : Parser.InputContext) (context : Parser.ParserModuleContext)
    (position : Parser.ModuleParserState) (found : Parsed) : Parsed :=
  let (stx, position, messages) := Parser.parseCommand input context position found.messages
  let found := { found with messages }
  if messages.hasErrors || Parser.isTerminalCommand stx then
    -- `#exit` and the like end a text before its end.
    if stx.getKind == ``Parser.Command.eoi || messages.hasErrors then found
    else { found with commands := found.commands.push stx }
  else parseFrom input context position { found with commands := found.commands.push stx }

/-- The context of the parser after the commands of a state. -/
def parserContext (state : Command.State) : Parser.ParserModuleContext :=
  let scope := state.scopes.head?.getD { header := "" }
  { env := state.env, options := scope.opts, currNamespace := scope.currNamespace, openDecls := scope.openDecls }

/-- Parses the commands of a text. -/
def parse (text : String) (state : Command.State) : Parsed :=
  let (input, context) := (inputContext text, parserContext state)
  let before := Parser.whitespace.run input context (Parser.getTokenTable state.env) (Parser.mkParserState text)
  match before.errorMsg with
  -- `Parser.parseCommand` would begin after a comment without an end, and find nothing.
  | some error => { messages := ({} : MessageLog).add { fileName := input.fileName, pos := ⟨1, 0⟩, data := toString error } }
  | none => parseFrom input context { pos := before.pos } {}

/-- Runs an action on a state, as the elaborator of a file would. -/
def runFrontend {α : Type} (text : String) (state : Command.State) (act : Frontend.FrontendM α) : IO (α × Command.State) := do
  let (result, final) ← (act.run { inputCtx := inputContext text }).run
    { commandState := state, parserState := {}, cmdPos := 0 }
  return (result, final.commandState)

end SgsJudge
