(function(){
"use strict";
function id(name){return document.getElementById(name)}
function make(tag,cls,text){var e=document.createElement(tag);if(cls)e.className=cls;if(text!==undefined)e.textContent=text;return e}
function fill(parent,children){parent.textContent="";children.forEach(function(c){parent.appendChild(c)})}
function grouped(n){return String(n).replace(/\B(?=(\d{3})+(?!\d))/g,",")}
function state(text,on){id("live-state").textContent=text;id("live-dot").className=on?"on":"off"}

// What happens right now.
function stage(g){
  var box=make("div","stage",g.name),bar=make("i"),done=make("b");
  var text=grouped(g.done)+(g.total?" of "+grouped(g.total):"")+(g.rate?" \u00b7 "+g.rate.toFixed(g.rate<10?1:0)+"/s":"");
  done.style.width=(g.total?Math.min(100,100*g.done/g.total):0)+"%";
  bar.appendChild(done);box.appendChild(make("span","",text));box.appendChild(bar);return box}
function worker(w){
  var row=make("tr");row.appendChild(make("th","",w.name));
  [w.kind,grouped(w.tasks),w.silent_s.toFixed(0)+" s ago"].forEach(function(t){row.appendChild(make("td","",t))});return row}
function recent(r){
  var card=make("article","card"),head=make("header");
  head.appendChild(make("span","round",r.kind));head.appendChild(make("code","",r.problem));
  card.appendChild(head);card.appendChild(make("pre","",r.statement));
  if(r.scores)card.appendChild(make("p","chips")).appendChild(make("span","chip",r.scores));
  if(r.text){var more=make("details");more.appendChild(make("summary","",r.kind==="proof"?"Proof":"Review"));
    more.appendChild(make("pre","proof",r.text));card.appendChild(more)}
  card.sgsKey=JSON.stringify(r);return card}
// Cards that stay keep their elements, so that what a reader has opened stays open.
function recents(list,entries){
  var known={},changed=list.children.length!==entries.length;
  Array.prototype.forEach.call(list.children,function(card){known[card.sgsKey]=card});
  var cards=entries.map(function(r,i){var key=JSON.stringify(r),old=list.children[i];
    if(!old||old.sgsKey!==key)changed=true;return known[key]||recent(r)});
  if(changed)list.replaceChildren.apply(list,cards);return changed}
function status(s){
  var has=s.round!==null&&s.round!==undefined;
  state((has?"Round "+s.round+(s.message?" \u00b7 ":""):"")+(s.message||""),true);
  fill(id("live-stages"),(s.stages||[]).map(stage));
  var queue=s.queue||[];
  fill(id("live-queue"),(queue.length?[make("span","tally","Tasks")]:[]).concat(queue.map(function(q){return make("span","chip",q[0]+" "+grouped(q[1]))})));
  var workers=s.workers||[];id("live-workers-box").hidden=!workers.length;
  id("live-workers-summary").textContent=workers.length===1?"1 worker":workers.length+" workers";
  fill(id("live-workers"),workers.map(worker));
  var entries=s.recent||[];id("live-recent-box").hidden=!entries.length;
  if(recents(id("live-recent"),entries))window.sgsFilter(id("live-recent-search"))}

// The figures: only parts that changed are replaced, one a frame, with what a reader has typed and opened in them.
function nameOf(details){
  var card=details.closest(".card");return (card?card.firstChild.textContent+card.children[1].textContent:"")+details.firstElementChild.textContent}
function kept(part){
  var k={open:{},inputs:{},sorted:{},scroll:{},focus:null};
  part.querySelectorAll("details").forEach(function(d){k.open[nameOf(d)]=d.open});
  part.querySelectorAll("[data-list]").forEach(function(i){k.inputs[i.tagName+i.dataset.list]=i.value;
    if(i===document.activeElement&&i.tagName==="INPUT")k.focus=[i.dataset.list,i.selectionStart,i.selectionEnd]});
  part.querySelectorAll("th[aria-sort]").forEach(function(h){k.sorted[h.closest("table").tBodies[0].id+h.textContent]=h.getAttribute("aria-sort")});
  part.querySelectorAll(".list,.scroll").forEach(function(l,n){k.scroll[n]=[l.scrollTop,l.scrollLeft]});
  return k}
function restore(part,k){
  part.querySelectorAll("details").forEach(function(d){var name=nameOf(d);if(name in k.open)d.open=k.open[name]});
  part.querySelectorAll("th").forEach(function(h){var order=k.sorted[h.closest("table").tBodies[0].id+h.textContent];if(order)window.sgsSort(h,order)});
  part.querySelectorAll("[data-list]").forEach(function(i){
    i.value=k.inputs[i.tagName+i.dataset.list]||"";
    if(i.value)window.sgsFilter(i);
    if(k.focus&&i.tagName==="INPUT"&&k.focus[0]===i.dataset.list){i.focus({preventScroll:true});i.setSelectionRange(k.focus[1],k.focus[2])}});
  part.querySelectorAll(".list,.scroll").forEach(function(l,n){if(k.scroll[n]){l.scrollTop=k.scroll[n][0];l.scrollLeft=k.scroll[n][1]}})}
function element(html){var t=document.createElement("template");t.innerHTML=html;return t.content.firstElementChild}
function place(part,at){
  var main=id("main"),there=main.children[at]||null,old=id(part[0]);
  if(old&&old.parentNode!==main)old=null;
  if(old&&old.dataset.tag===part[1]){if(old!==there)main.insertBefore(old,there);return false}
  var fresh=element(part[2]);
  if(old){var k=kept(old);old.replaceWith(fresh);restore(fresh,k);if(fresh!==main.children[at])main.insertBefore(fresh,main.children[at])}
  else main.insertBefore(fresh,there);
  window.sgsWatch(fresh);return true}
function show(f,done){
  var wanted={},at=0;f.parts.forEach(function(p){wanted[p[0]]=true});
  Array.prototype.slice.call(id("main").children).forEach(function(c){if(!wanted[c.id])c.remove()});
  if(id("nav").innerHTML!==f.nav)id("nav").innerHTML=f.nav;
  document.title=f.title+" \u00b7 sgs";
  function step(){
    while(at<f.parts.length)if(place(f.parts[at],at++))break;
    if(at<f.parts.length)requestAnimationFrame(step);else done()}
  step()}
var shown=window.sgsVersion,busy=false,wanted=shown,last=null;
function apply(f){busy=true;show(f,function(){shown=window.sgsVersion=f.version;next()})}
function next(){
  var f=last;busy=false;last=null;
  if(f)apply(f);else if(wanted!==shown)setTimeout(function(){update(wanted)},1000)}
function update(version){
  wanted=version;if(busy||shown===version)return;busy=true;
  fetch("fragment"+location.search).then(function(r){if(!r.ok)throw new Error(r.status);return r.json()})
    .then(apply).catch(next)}
var source=new EventSource("events"+location.search);
source.addEventListener("open",function(){state("connected",true)});
source.addEventListener("version",function(e){update(Number(e.data))});
source.addEventListener("figures",function(e){last=JSON.parse(e.data);wanted=last.version;if(!busy)next()});
var over=false;
source.addEventListener("status",function(e){var s=JSON.parse(e.data);if(Object.keys(s).length){over=s.message==="finished";status(s)}});
source.addEventListener("error",function(){
  if(over){source.close();return}
  state("the run does not respond; this page shows its last state",false)});
})();
