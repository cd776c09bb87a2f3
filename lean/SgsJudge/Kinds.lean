import SgsJudge.Term

/-!
Lists the syntax kinds that a text may contain. These are the kinds of Lean, Batteries, Aesop and Mathlib whose
elaborators run no code of the text. A kind that does not exist in a version of Lean has no effect.
-/

namespace SgsJudge
open Lean

private def under (space : Name) (names : List String) : List Name := names.map fun name => space ++ name.toName

/-- Terms. -/
private def terms : List Name := under `Lean.Parser.Term [
  "anonymousCtor", "app", "arrow", "binop", "binop_lazy", "binrel", "binrel_no_prop", "borrowed", "byTactic", "cdot", "char",
  "clear", "defaultOrOfNonempty", "depArrow", "do", "dotIdent", "ensureExpectedType", "ensureTypeOf", "explicit",
  "explicitUniv", "forInMacro", "forInMacro'", "forall", "fun", "have", "haveI", "hole", "ident", "inaccessible", "leftact",
  "let", "letI", "letMVar", "let_delayed", "let_fun", "letrec", "liftMethod", "match", "namedPattern", "noImplicitLambda",
  "noindex", "nofun", "nomatch", "num", "omission", "open", "paren", "pipeProj", "proj", "prop", "rightact", "scientific",
  "set_option", "show", "sort", "str", "structInst", "subst", "suffices", "syntheticHole", "tuple", "type",
  "typeAscription", "typeOf", "unop", "waitIfContainsMVar", "waitIfTypeContainsMVar", "waitIfTypeMVar"] ++ [
  `ident, `num, `str, `char, `scientific, `choice, `null, `group, `hygieneInfo, `Lean.calc, `Lean.modCast,
  `Lean.withAnnotateTerm, `Lean.Parser.Tactic.showTermElab, `Lean.Parser.Term.showTermElabImpl, `coeFunNotation,
  `coeNotation, `coeSortNotation, `rawNatLit, `Lean.Elab.Term.coeFunNotation] ++ [
  `Std.Do.triple, `Mathlib.Meta.setBuilder, `Mathlib.Tactic.TermCongr.termCongr, `Mathlib.Util.TermReduce.betaStx,
  `Mathlib.Tactic.Superscript.superscript]

/-- Tactics of Lean. -/
private def tactics : List Name := under `Lean.Parser.Tactic [
  "acNf0", "acRfl", "ac_rfl", "allGoals", "anyGoals", "apply", "apply?", "applyAssumption", "applyRfl", "applyRules",
  "as_aux_lemma", "assumption", "bvNormalize", "bvOmega", "calc", "case", "case'", "cases", "change", "changeWith", "classical",
  "clear", "clearValue", "congr", "constructor", "contradiction", "cutsat", "decide", "delta", "done", "dsimp", "dsimpTrace",
  "eqRefl", "exact", "exact?", "exists", "exposeNames", "extractLets", "fail", "failIfSuccess", "falseOrByContra", "first",
  "focus", "funCases", "funInduction", "generalize", "grind", "grindTrace", "grobner", "guardExpr", "guardHyp",
  "guardTarget", "induction", "injection", "injections", "intro", "introMatch", "intros", "left", "letToHave", "lia",
  "liftLets", "match", "massumption", "mcases", "mclear", "mconstructor", "mdup", "mexact", "mexfalso", "mexists", "mframe",
  "mhave", "mintro", "mleft", "mpure", "mpureIntro", "mrefine", "mrenameI", "mreplace", "mrevert", "mright", "mspecNoBind",
  "mspecialize", "mspecializePure", "mstart", "mstop", "mvcgen", "nestedTactic", "normCast0", "norm_cast0", "obtain", "omega",
  "open", "paren", "pushCast", "rcases", "refine", "refine'", "rename", "renameI", "repeat'", "repeat1'", "replace", "revert",
  "rewriteSeq", "rewrites?", "right", "rintro", "rotateLeft", "rotateRight", "set_option", "show", "showTerm", "simp",
  "simpAll", "simpAllArith", "simpAllArithBang", "simpAllTrace", "simpArith", "simpArithBang", "simpTrace", "simpa", "skip",
  "solveByElim", "specialize", "split", "subst", "substEqs", "substVars", "symm", "symmSaturate", "tacticSeq",
  "tacticSeq1Indented", "tacticSeqBracketed", "traceMessage", "traceState", "tryTrace", "unfold", "withReducible",
  "withReducibleAndInstances", "withUnfoldingAll", "withAnnotateState", "seq1"] ++ under `Lean.Parser.Tactic.Conv [
  "arg", "change", "clear", "congr", "conv", "convConvSeq", "convSeq", "convSeq1Indented", "convSeqBracketed", "convTactic",
  "delta", "dsimp", "dsimpTrace", "enter", "ext", "extractLets", "first", "fun", "letToHave", "lhs", "liftLets", "nestedConv",
  "nestedTactic", "nestedTacticCore", "normCast", "paren", "pattern", "reduce", "rewrite", "rhs", "simp", "simpMatch",
  "simpTrace", "skip", "unfold", "whnf", "zeta"] ++ under `Lean.Parser.Tactic [
  "guardExprConv", "guardHypConv", "guardTargetConv"] ++ [
  `Lean.Elab.Tactic.Ext.applyExtTheorem, `Lean.Elab.Tactic.Ext.ext, `Lean.calcTactic, `Lean.cdot]

/-- Tactics of Batteries, Aesop and Mathlib. Tactics that are macros need not be listed. -/
private def libraryTactics : List Name := under `Batteries.Tactic [
  "byContra", "casePatt", "casePatt'", "congrConfig", "congrConfigWith", "exacts", "generalizeProofsElab", "introDot", "rcongr", "seq_focus",
  "tacticEapply_", "tacticFapply_", "tacticTrans___", "tacticTransitivity___", "unreachable", "«tacticMap_tacs[_;]»"] ++ under
  `Mathlib.Tactic [
  "Abel.abel", "Abel.abel1", "Abel.abel1!", "Abel.abelNF", "Choose.choose", "ComputeDegree.computeDegree", "Congr!.congr!",
  "Contrapose.contrapose", "Contrapose.contrapose!", "Conv.convLHS", "Conv.convRHS", "DepRewrite.depRewriteSeq",
  "FieldSimp.field", "FieldSimp.fieldSimp", "GCongr.tacticGcongr__With__", "GCongr.tacticGcongr___With___",
  "GCongr.«tacticRel[_]»", "Group.group", "ITauto.itauto", "ITauto.itauto!", "LibrarySearch.observe",
  "LinearCombination.linearCombination", "LinearCombination'.linearCombination'", "ModCases.«tacticMod_cases_:_%_»",
  "Module.tacticMatch_scalars", "Module.tacticModule", "Monotonicity.mono", "NoncommRing.noncomm_ring",
  "Nontriviality.nontriviality", "Order.order_core", "Order.tacticOrder_", "Peel.peel", "Positivity.positivity", "Push.pull",
  "Push.pushStx", "Push.push_neg", "PushNeg.tacticPush_neg_", "Qify.qify", "Rify.rify", "Ring.ring1", "Ring.tacticRing1!",
  "RingNF.ring", "RingNF.ring1NF", "RingNF.ringNF", "Says.says", "Substs.substs", "TFAE.tfaeFinish", "TFAE.tfaeHave",
  "TFAE.tfaeHave'", "Tauto.tauto", "TautoSet.specialize_all", "Zify.zify", "acChange", "acMono", "applyFun", "applyWith",
  "betaReduceStx", "byContra!", "cancelDenoms", "cases'", "casesM", "casesType", "casesType!", "cc", "change?", "clear!",
  "clearAuxDecl", "clearExcept", "clear_", "congrM", "constructorM", "convert", "convertTo", "etaExpandStx", "etaReduceStx",
  "etaStructStx", "failIfNoProgress", "filterUpwards", "finCases", "generalizeProofsElab", "grewriteSeq", "induction'",
  "inferOptParam", "inhabit", "intervalCases", "introv", "lift", "lift_lets", "linarith", "linarith?", "measurability",
  "nlinarith", "normNum", "normNum1", "nthRewriteSeq", "nthRwSeq", "refoldLetStx", "rename'", "replace'", "rsuffices",
  "setTactic", "splitIfs", "subsingletonStx", "tacticApply_At_", "tacticAssumption'",
  "tacticCancel_denoms_", "tacticHave_", "tacticLet_", "tacticNth_rewrite_____", "tacticReduce__", "tacticSimp_rw___",
  "tacticSuffices_", "tacticWhnf__", "unfoldLetStx", "unfoldProjsStx", "useSyntax", "wlog", "wlog!", "«tacticExistsi_,,»",
  "«tacticGeneralize'_:_=_»", "«tacticRename_bvar_→__»", "«tacticSimp_intro_____..Only_»", "«tacticSwap_var__,,»",
  "«tacticUse!___,,»"] ++ [
  `Aesop.Frontend.Parser.aesopTactic, `Aesop.Frontend.Parser.aesopTactic?, `Mathlib.Meta.FunProp.funPropTacStx,
  `Mathlib.MoveAdd.moveOperTac, `Mathlib.extractLets, `Tactic.ReduceModChar.reduce_mod_char,
  `Tactic.ReduceModChar.reduce_mod_char!]

/-- Kinds that may be elaborated. -/
def elaborable : Std.HashSet Name := Std.HashSet.ofList (terms ++ tactics ++ libraryTactics)

/-- Kinds that may be elaborated in a statement, which the replaying process elaborates too: terms and the tactics that close
the small goals of indices, numbers and default values. -/
def elaborableInStatements : Std.HashSet Name := Std.HashSet.ofList (terms ++ under `Lean.Parser.Tactic [
  "allGoals", "apply", "applyRfl", "assumption", "constructor", "contradiction", "decide", "done", "dsimp", "eqRefl", "exact",
  "exists", "fail", "first", "focus", "intro", "intros", "left", "nestedTactic", "omega", "paren", "refine", "rewriteSeq",
  "right", "seq1", "simp", "simpAll", "simpa", "skip", "tacticSeq", "tacticSeq1Indented", "tacticSeqBracketed",
  "withAnnotateState", "withReducible"] ++ [
  `Lean.cdot, `Mathlib.Tactic.normNum, `Mathlib.Tactic.Positivity.positivity, `Mathlib.Tactic.linarith])

/-- Names that a text must not contain. To check a proof that uses one of them, the kernel runs compiled code or accepts
anything, or Lean runs a tactic that is no part of the text (`autoParam`). -/
def forbiddenNames : List String :=
  ["autoParam", "reduceBool", "reduceNat", "ofReduceBool", "ofReduceNat", "trustCompiler", "sorryAx", "lcProof", "lcUnreachable", "lcAny"]

/-- Kinds that set an option. -/
def setOptions : List Name :=
  [`Lean.Parser.Term.set_option, `Lean.Parser.Tactic.set_option, `Lean.Parser.Command.set_option,
   `Lean.Parser.Tactic.Grind.setOption]

/-- Options that a text may set to a number, with their largest allowed values. -/
def numberOptions : List (Name × Nat) :=
  [(`maxRecDepth, 100000), (`maxHeartbeats, 1000000000000), (`synthInstance.maxHeartbeats, 1000000000000),
   (`synthInstance.maxSize, 100000), (`exponentiation.threshold, 4096)]

/-- Options that a text may switch on or off. They change only the output or the choice of names. -/
def switchOptions : List Name :=
  [`tactic.hygienic, `pp.all, `pp.explicit, `pp.universes, `pp.proofs, `autoImplicit, `relaxedAutoImplicit]

/-- Prefixes of the options that a header may set to any value. -/
def freeInHeaders : List Name :=
  [`maxHeartbeats, `maxRecDepth, `autoImplicit, `relaxedAutoImplicit, `pp, `linter, `tactic,
   `maxSynthPendingDepth, `exponentiation, `backward, `warningAsError, `trace.Meta, `smartUnfolding, `quotPrecheck,
   `hygiene, `maxUniverseOffset, `diagnostics]

/-- Parts that declare more than a theorem. -/
def declaring : List Name := [`Lean.Parser.Term.whereDecls, `Lean.Parser.Term.letrec, `Lean.Parser.Tactic.letrec, `Lean.Parser.Term.doLetRec]

/-- Nodes whose own identifiers are names that they declare. -/
def declaringNames : List Name := under `Lean.Parser.Command [
  "declId", "namespace", "namedName", "ctor", "structCtor", "structExplicitBinder", "structImplicitBinder", "structInstBinder",
  "structSimpleBinder", "computedField"]

/-- Whether a part says why a recursion ends (`termination_by`, `decreasing_by`), or is elaborated at that time. -/
def isTermination (kind : Name) : Bool :=
  kind == `Lean.Parser.Term.whereFinally ||
    (`Lean.Parser.Termination).isPrefixOf kind && kind != `Lean.Parser.Termination.suffix

/-- Aesop, which tries the rules that a text adds as tactics. -/
def aesops : List Name := [`Aesop.Frontend.Parser.aesopTactic, `Aesop.Frontend.Parser.aesopTactic?]

/-- Builders of Aesop's rules that evaluate a constant as code. -/
def evaluatingBuilders : List String := ["tactic", "simproc"]

/-- Tactics that search the environment for lemmas, or that evaluate constants that they find. -/
def searching : List Name :=
  aesops ++ [`Lean.Parser.Tactic.exact?, `Lean.Parser.Tactic.apply?, `Lean.Parser.Tactic.rewrites?, `Lean.Parser.Tactic.tryTrace,
   `Mathlib.Tactic.LibrarySearch.observe]

/-- Parts of allowed commands and terms that a text must not contain. -/
def refusedParts : List Name :=
  [`Lean.Parser.Command.unsafe, `Lean.Parser.Command.partial, `Lean.Parser.Command.meta]

/-- Parts of a configuration around its items. -/
def configurationParts : List Name := [`null, `group, `Lean.Parser.Tactic.configItem]

/-- Kinds of terms in a configuration. -/
def literalKinds : List Name :=
  [`num, `str, `char, `scientific, `null, `group, `hygieneInfo, `choice, `«term[_]», `Lean.Parser.Term.paren,
   `Lean.Parser.Term.hygienicLParen, `Lean.Parser.Term.app, `Lean.Parser.Term.structInst,
   `Lean.Parser.Term.structInstFields, `Lean.Parser.Term.structInstField, `Lean.Parser.Term.structInstFieldDef, `Lean.Parser.Term.optEllipsis]

/-- Constructors that a configuration may name after a dot. -/
def dotConstructors : List Name :=
  [`true, `false, `none, `some, `all, `default, `reducible, `instances, `pos, `neg, `notClasses, `nonDependentFirst, `nonDependentOnly]

/-- Classes of the library's operators. Literals are elaborated without them, and no instance of another class follows from
theirs alone. -/
def operatorClasses : List Name :=
  [`Add, `Sub, `Mul, `Div, `Mod, `Neg, `Inv, `Pow, `HAdd, `HSub, `HMul, `HDiv, `HMod, `HPow, `SMul, `HSMul, `Append, `HAppend,
   `LE, `LT, `Dvd, `Membership, `HasSubset, `HasSSubset, `Union, `Inter, `SDiff, `Min, `Max, `BEq, `Repr, `ToString]

/-- Attributes of a helper. -/
def helperAttributes : List Name := [`Lean.Parser.Attr.simp, `simp]

/-- Commands that may precede a helper, joined to it with `in`. -/
def beforeHelpers : List Name := [`Lean.Parser.Command.set_option, `Lean.Parser.Command.open]

/-- Commands of a header that may be joined to another command with `in`. None of them defines anything, so that the rules
for one command see everything that existed before it, and no instance is defined together with a notation. -/
def beforeInHeaders : List Name := under `Lean.Parser.Command [
  "set_option", "open", "variable", "universe", "omit", "include"]

/-- Commands of a header. -/
def headerCommands : List Name := under `Lean.Parser.Command [
  "declaration", "namespace", "section", "end", "open", "variable", "universe", "set_option", "in", "notation", "mixfix", "moduleDoc",
  "attribute", "omit", "include", "export", "mutual", "deriving", "noncomputableSection", "addDocString", "eoi", "check",
  "print"] ++ [`lemma, `Mathlib.Notation3.notation3]

/-- Commands of a header that declare notations. -/
def notations : List Name := under `Lean.Parser.Command ["notation", "mixfix"] ++ [`Mathlib.Notation3.notation3]

/-- Declarations of a header. -/
def headerDeclarations : List Name := under `Lean.Parser.Command [
  "abbrev", "definition", "theorem", "instance", "inductive", "classInductive", "structure", "example"]

/-- Parts that a header must not contain. -/
def refusedInHeaders : List Name :=
  [`Lean.Parser.Command.unsafe, `Lean.Parser.Command.meta, `Lean.Parser.Command.axiom, `Lean.Parser.Command.opaque]

/-- Attributes that a header may use. None of them runs code or replaces the code of a definition. (`norm_num`, `positivity`
and `aesop` would make a definition of the header a part of these tactics.) -/
def headerAttributes : List Name := [
  `simp, `Lean.Parser.Attr.simp, `ext, `Lean.Parser.Attr.ext, `Lean.Parser.Attr.instance, `instance, `reducible,
  `semireducible, `irreducible, `inline, `norm_cast, `Lean.Parser.Attr.norm_cast, `push_cast, `refl, `symm, `trans, `congr,
  `elab_as_elim, `class, `Lean.Parser.Attr.class, `Lean.Parser.Attr.default_instance, `default_instance, `simps, `mono,
  `gcongr, `fun_prop, `local, `coe, `Lean.Attr.coe, `match_pattern, `grind,
  `Lean.Parser.Attr.grind, `Lean.deprecated, `ring_nf, `field_simps, `continuity, `measurability, `to_additive]

end SgsJudge
