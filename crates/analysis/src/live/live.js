(function(){
"use strict";
function id(name){return document.getElementById(name)}
function make(tag,cls,text){var e=document.createElement(tag);if(cls)e.className=cls;if(text!==undefined)e.textContent=text;return e}
function fill(parent,children){parent.textContent="";children.forEach(function(c){parent.appendChild(c)})}
function state(text,on){id("live-state").textContent=text;id("live-dot").className=on?"on":"off"}
function grouped(n){return String(n).replace(/\B(?=(\d{3})+(?!\d))/g,"\u202f")}
function status(s){
state((s.round!==null&&s.round!==undefined?"Round "+s.round+(s.message?" \u00b7 ":""):"")+(s.message||""),true);
fill(id("live-stages"),(s.stages||[]).map(function(g){var d=make("div","stage",g.name),n=make("span","",grouped(g.done)+(g.total?" of "+grouped(g.total):"")+(g.rate?" \u00b7 "+g.rate.toFixed(g.rate<10?1:0)+"/s":"")),bar=make("i"),b=make("b");
b.style.width=(g.total?Math.min(100,100*g.done/g.total):0)+"%";bar.appendChild(b);d.appendChild(n);d.appendChild(bar);return d}));
fill(id("live-queue"),(s.queue||[]).map(function(q){return make("span","chip",q[0]+" "+grouped(q[1]))}));
var workers=s.workers||[];id("live-workers-box").hidden=!workers.length;id("live-workers-summary").textContent=workers.length+" workers";
fill(id("live-workers"),workers.map(function(w){var r=make("tr");r.appendChild(make("th","",w.name));[w.kind,w.tasks,w.silent_s.toFixed(0)+" s ago"].forEach(function(t){r.appendChild(make("td","",t))});return r}));
var recent=s.recent||[];id("live-recent-box").hidden=!recent.length;
fill(id("live-recent"),recent.map(function(r){var c=make("article","card"),h=make("header");h.appendChild(make("span","round",r.kind));h.appendChild(make("code","",r.problem));c.appendChild(h);c.appendChild(make("pre","",r.statement));
if(r.scores)c.appendChild(make("p","chips")).appendChild(make("span","chip",r.scores));
if(r.text){var d=make("details");d.appendChild(make("summary","",r.kind==="proof"?"Proof":"Review"));d.appendChild(make("pre","proof",r.text));c.appendChild(d)}return c}));
window.sgsFilterAll()}
var shown=window.sgsVersion,busy=false,wanted=shown;
function update(version){wanted=version;if(busy||shown===version)return;busy=true;
fetch("fragment"+location.search).then(function(r){if(!r.ok)throw new Error(r.status);return r.json()}).then(function(f){
var kept={},open={};document.querySelectorAll("#main input[data-list]").forEach(function(i){kept[i.dataset.list]=i.value});
document.querySelectorAll("#main .list").forEach(function(l){open[l.id]=l.scrollTop});
var y=scrollY,tip=id("tip");tip.hidden=true;id("main").innerHTML=f.main;id("nav").innerHTML=f.nav;document.title=f.title+" \u00b7 sgs";
document.querySelectorAll("#main input[data-list]").forEach(function(i){if(kept[i.dataset.list])i.value=kept[i.dataset.list]});
window.sgsFilterAll();Object.keys(open).forEach(function(k){var l=id(k);if(l)l.scrollTop=open[k]});scrollTo(0,y);window.sgsWatch();
shown=f.version}).catch(function(){}).then(function(){busy=false;if(wanted!==shown)setTimeout(function(){update(wanted)},1000)})}
var source=new EventSource("events"+location.search);
source.addEventListener("open",function(){state("connected",true)});
source.addEventListener("version",function(e){update(Number(e.data))});
source.addEventListener("status",function(e){var s=JSON.parse(e.data);if(Object.keys(s).length)status(s)});
source.addEventListener("error",function(){state("the run does not answer; what stands here is what it last said",false)});
})();
