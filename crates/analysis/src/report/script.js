(function(){
"use strict";
var root=document.documentElement,tip=document.getElementById("tip"),NS="http://www.w3.org/2000/svg";
function stored(value){try{if(value===undefined)return localStorage.getItem("sgs-theme");localStorage.setItem("sgs-theme",value)}catch(e){return null}}
if(stored())root.dataset.theme=stored();
document.getElementById("theme").addEventListener("click",function(){
var dark=root.dataset.theme?root.dataset.theme==="dark":matchMedia("(prefers-color-scheme: dark)").matches;
root.dataset.theme=dark?"light":"dark";stored(root.dataset.theme)});
function significant(v,d){if(v===0)return"0";var m=Math.floor(Math.log10(Math.abs(v)));if(m<-5||m>9)return v.toExponential(d-1).replace(/\.?0*e\+?/,"e").replace(/-/g,"\u2212");
var t=v.toFixed(Math.max(0,d-1-m));if(t.indexOf(".")>=0)t=t.replace(/0+$/,"").replace(/\.$/,"");return t.replace("-","\u2212")}
function written(v,unit){if(v===null||!isFinite(v))return"\u2013";var a=Math.abs(v);
if(unit==="p")return significant(100*v,4)+"%";
if(unit==="c")return a>=1e9?significant(v/1e9,4)+"G":a>=1e6?significant(v/1e6,4)+"M":a>=1e4?significant(v/1e3,4)+"k":significant(v,4);
if(unit==="d")return a>=172800?significant(v/86400,3)+" d":a>=7200?significant(v/3600,3)+" h":a>=120?significant(v/60,3)+" min":a>=1||a===0?significant(v,3)+" s":significant(v*1e3,3)+" ms";
return significant(v,4)}
function share(axis,v){return(v-axis.a)/(axis.b-axis.a)}
function value(axis,t){return axis.a+t*(axis.b-axis.a)}
function nearest(xs,x){var lo=0,hi=xs.length-1;if(hi<0)return-1;while(hi-lo>1){var mid=(lo+hi)>>1;if(xs[mid]<x)lo=mid;else hi=mid}return Math.abs(xs[lo]-x)<=Math.abs(xs[hi]-x)?lo:hi}
function clear(panel){var old=panel.querySelectorAll(".overlay");for(var i=0;i<old.length;i++)old[i].remove();tip.hidden=true}
function data(panel){if(panel.sgsData===undefined){var s=panel.querySelector("script");panel.sgsData=s?JSON.parse(s.textContent):null}return panel.sgsData}
function element(name,attributes,parent){var e=document.createElementNS(NS,name);for(var k in attributes)e.setAttribute(k,attributes[k]);parent.appendChild(e);return e}
function hover(event){
var svg=event.target.closest&&event.target.closest(".panel svg");if(!svg)return;
var panel=svg.closest(".panel"),d=data(panel);if(!d)return;
var form=svg.classList.contains("narrow")?d.narrow:d.full,f=form.f,box=svg.getBoundingClientRect(),k=form.w/box.width;
var px=(event.clientX-box.left)*k,py=(event.clientY-box.top)*k;
clear(panel);
if(px<f[0]-4||px>f[2]+4||py<f[1]-8||py>f[3]+8)return;
var x=value(d.x,(px-f[0])/(f[2]-f[0])),reach=(d.x.b-d.x.a)*.04,found=[],at=null;
d.s.forEach(function(s){var i=nearest(s.x,x);if(i<0||s.y[i]===null)return;var ends=s.x.length>1&&(x<s.x[0]||x>s.x[s.x.length-1]);if(ends&&Math.abs(s.x[i]-x)>reach)return;
found.push({s:s,i:i});if(at===null||Math.abs(s.x[i]-x)<Math.abs(at-x))at=s.x[i]});
if(!found.length)return;
var g=element("g",{"class":"overlay"},svg),gx=f[0]+share(d.x,at)*(f[2]-f[0]);
element("line",{x1:gx,x2:gx,y1:f[1],y2:f[3],"class":"guide"},g);
tip.textContent="";
var b=document.createElement("b");b.textContent=d.x.t+" "+written(at,d.x.u);tip.appendChild(b);
found.sort(function(p,q){return q.s.y[q.i]-p.s.y[p.i]}).slice(0,14).forEach(function(p){
var y=p.s.y[p.i],cy=f[3]-share(d.y,y)*(f[3]-f[1]),cx=f[0]+share(d.x,p.s.x[p.i])*(f[2]-f[0]);
if(cy>=f[1]-2&&cy<=f[3]+2)element("circle",{cx:cx,cy:cy,r:4.2,"class":"spot f"+p.s.c},g);
var row=document.createElement("span"),dot=document.createElement("i"),name=document.createElement("span"),em=document.createElement("em");
dot.style.background="var(--"+p.s.c+")";name.textContent=p.s.n;em.textContent=written(y,d.y.u);
if(p.s.l){var small=document.createElement("small");small.textContent=written(p.s.l[p.i],d.y.u)+" to "+written(p.s.h[p.i],d.y.u);em.appendChild(small)}
row.appendChild(dot);row.appendChild(name);row.appendChild(em);tip.appendChild(row)});
tip.hidden=false;
var w=tip.offsetWidth,h=tip.offsetHeight,left=event.clientX+16,top=event.clientY+16;
if(left+w>innerWidth-8)left=Math.max(8,event.clientX-w-16);
if(top+h>innerHeight-8)top=Math.max(8,event.clientY-h-16);
tip.style.left=left+scrollX+"px";tip.style.top=top+scrollY+"px"}
var last=null;
function follow(event){var panel=event.target.closest?event.target.closest(".panel"):null;if(last&&last!==panel)clear(last);last=panel;if(panel)hover(event)}
document.addEventListener("pointermove",follow);
document.addEventListener("pointerdown",follow);
document.addEventListener("pointerleave",function(){if(last)clear(last)});
document.addEventListener("scroll",function(){if(last)clear(last)},{passive:true});
addEventListener("resize",function(){if(last)clear(last)});
function filter(control){
var list=document.getElementById(control.dataset.list),box=control.parentNode,select=box.querySelector("select"),shown=0;if(!list)return;
var words=box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean),round=select?select.value:"";
Array.prototype.forEach.call(list.children,function(item){var text=item.sgsText||(item.sgsText=item.textContent.toLowerCase());
var ok=(!round||item.dataset.round===round)&&words.every(function(w){return text.indexOf(w)>=0});item.hidden=!ok;if(ok)shown++});
box.querySelector("output").textContent=words.length||round?shown+" found":""}
document.addEventListener("input",function(event){if(event.target.dataset&&event.target.dataset.list)filter(event.target)});
window.sgsFilter=filter;
// Sorts a table by the column of a heading. Missing values are last in both directions.
function sort(head,order){
var row=head.parentNode,body=head.closest("table").tBodies[0],at=Array.prototype.indexOf.call(row.children,head),sign=order==="descending"?-1:1;
Array.prototype.forEach.call(row.children,function(h){h.removeAttribute("aria-sort")});head.setAttribute("aria-sort",order);
function key(r){var c=r.children[at];return c.dataset.v!==undefined?Number(c.dataset.v):c.textContent==="\u2013"?null:c.textContent}
Array.from(body.children).map(function(r){return[key(r),r]}).sort(function(p,q){var a=p[0],b=q[0];
if(a===null||b===null)return(a===null)-(b===null);
return sign*(typeof a==="number"&&typeof b==="number"?a-b:String(a).localeCompare(String(b)))}).forEach(function(p){body.appendChild(p[1])})}
document.addEventListener("click",function(event){var head=event.target.closest&&event.target.closest("th:has(button)");
if(head)sort(head,head.getAttribute("aria-sort")==="ascending"?"descending":"ascending")});
window.sgsSort=sort;
// A link to a folded section opens it.
function unfold(){var part=location.hash&&document.getElementById(location.hash.slice(1)),fold=part&&part.querySelector(":scope>details");if(fold)fold.open=true}
addEventListener("hashchange",unfold);unfold();
var nav=document.getElementById("nav"),seen="IntersectionObserver" in window?new IntersectionObserver(function(entries){entries.forEach(function(e){
if(!e.isIntersecting)return;var a=nav.querySelector('a[href="#'+e.target.id+'"]');if(!a)return;
var old=nav.querySelector(".here");if(old)old.classList.remove("here");a.classList.add("here");
nav.scrollLeft=a.offsetLeft-nav.offsetLeft-40})},{rootMargin:"-60px 0px -70% 0px"}):null;
window.sgsWatch=function(part){if(seen)seen.observe(part)};
document.querySelectorAll("main section[id]").forEach(window.sgsWatch);
})();
