#include "src/cli/tune_page.h"

namespace whet {
namespace {

constexpr char kStyle[] = R"css(
:root{--ink:#1b1f24;--soft:#5b6572;--faint:#8a93a0;--line:#e3e7ec;--paper:#fbfcfd;--card:#fff;--accent:#0b6e99;
--good:#1a7f4b;--warn:#b26a00;--bad:#b3261e;--shade:#f1f4f7;--c0:#0b6e99;--c1:#c2571a;--c2:#5b8c2a;--c3:#8a4fbf;--c4:#b3261e;--c5:#2a7f7a;--c6:#a0762b;--c7:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaee;--soft:#a7b0bb;--faint:#76808c;--line:#2c333b;--paper:#12161a;--card:#191e24;--accent:#58b7e0;
--good:#5ccb8f;--warn:#e6a94d;--bad:#f2857d;--shade:#20262d;--c0:#58b7e0;--c1:#ee9a5f;--c2:#a0cf6b;--c3:#c39af0;--c4:#f2857d;--c5:#69c9c2;--c6:#d9b26a;--c7:#98a2ae}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px;letter-spacing:-.01em}h2{font-size:18px;margin:0;letter-spacing:-.01em}
h3{font-size:13px;margin:26px 0 6px;color:var(--soft);font-weight:600;text-transform:uppercase;letter-spacing:.05em}
p{margin:4px 0;color:var(--soft)}code,.id{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 22px;margin:22px 0}
.facts{display:flex;flex-wrap:wrap;gap:6px 28px;margin:12px 0 0}.facts div{min-width:96px}
.facts dt{font-size:12px;color:var(--faint)}.facts dd{margin:0;font-size:16px;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;font-size:13.5px}th{font-weight:600;color:var(--soft);text-align:left;border-bottom:1px solid var(--line);padding:6px 10px 6px 0;font-size:12.5px}
td{border-bottom:1px solid var(--line);padding:6px 10px 6px 0;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr:last-child td{border-bottom:0}a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
.wrap{overflow-wrap:anywhere}.pill{display:inline-block;border-radius:9px;padding:0 8px;font-size:12px;line-height:18px;background:var(--shade);color:var(--soft);white-space:nowrap}
.pill.winner{background:var(--good);color:var(--card)}.pill.wrong,.pill.failed{color:var(--bad)}.pill.tied{color:var(--good)}
.note{color:var(--warn)}.error{color:var(--bad)}svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}svg text.id{font:11px ui-monospace,Menlo,Consolas,monospace;fill:var(--ink)}
svg text.faint{fill:var(--faint)}svg .grid{stroke:var(--line);stroke-width:1}svg .axis{stroke:var(--faint);stroke-width:1}
button{font:inherit;font-size:13px;border:1px solid var(--line);background:var(--card);color:var(--accent);border-radius:7px;padding:3px 12px;margin:8px 0 0;cursor:pointer}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12.5px;color:var(--soft);margin:6px 0}.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;vertical-align:-1px}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--paper);padding:6px 10px;border-radius:7px;font-size:12.5px;max-width:420px;display:none;z-index:9;white-space:pre-line}
footer{color:var(--faint);font-size:12.5px;margin-top:28px}
@media print{.card{break-inside:avoid}button{display:none}}
)css";

constexpr char kScript[] = R"js(
"use strict";
const D=JSON.parse(document.getElementById("whet-data").textContent),NS="http://www.w3.org/2000/svg";
const tip=document.getElementById("tip");
function el(tag,attrs,...kids){const e=document.createElement(tag);for(const k in attrs||{})if(attrs[k]!=null)e.setAttribute(k,attrs[k]);
 for(const c of kids.flat())if(c!=null)e.append(c);return e}
function sv(tag,attrs,text){const e=document.createElementNS(NS,tag);for(const k in attrs||{})if(attrs[k]!=null)e.setAttribute(k,attrs[k]);
 if(text!=null)e.textContent=text;return e}
function hint(e,text){e.addEventListener("mousemove",v=>{tip.textContent=text;tip.style.display="block";
 tip.style.left=Math.min(v.clientX+14,innerWidth-tip.offsetWidth-8)+"px";tip.style.top=Math.min(v.clientY+14,innerHeight-tip.offsetHeight-8)+"px"});
 e.addEventListener("mouseleave",()=>tip.style.display="none");return e}
function ns(t){return t<999.5?t.toFixed(0)+" ns":t<999.5e3?(t/1e3).toPrecision(4)+" µs":t<999.5e6?(t/1e6).toPrecision(4)+" ms":(t/1e9).toPrecision(4)+" s"}
function sec(s){return s===0?"0":s<0.01?(s*1e3).toFixed(1)+" ms":s<10?s.toFixed(2)+" s":s<120?s.toFixed(1)+" s":(s/60).toFixed(1)+" min"}
function pct(r){return (r>=0?"+":"−")+Math.abs(100*r).toFixed(Math.abs(r)<0.1?1:0)+" %"}
function ticks(lo,hi,n){const raw=(hi-lo)/n||1,p=10**Math.floor(Math.log10(raw)),s=[1,2,2.5,5,10].find(m=>m*p>=raw)*p,out=[];
 for(let v=Math.ceil(lo/s-1e-9)*s;v<=hi+s*1e-6;v+=s)out.push(+v.toPrecision(12));return out}
function color(i){return "var(--c"+(i%8)+")"}
function shorten(id,n){return id.length<=n?id:id.slice(0,n-1)+"…"}
const STAGE={compile:"compiling",verify:"verification",screen:"screening",heats:"heats",finals:"finals",live:"live calls","":"—"};
const OUT={timed:"timed",dropped:"dropped",wrong:"wrong",failed:"failed",untried:"not tried"};

// Variants by time, with the interval of each.
function forest(p,all){
 const timed=p.variants.filter(v=>v.median_ns>0).sort((a,b)=>(b.final_round?1:0)-(a.final_round?1:0)||a.median_ns-b.median_ns);
 if(!timed.length)return el("p",{},"No variant was timed.");
 const rows=all?timed:timed.slice(0,16),best=Math.min(...timed.map(v=>v.median_ns)),W=1070,L=Math.min(424,26+6.7*Math.min(58,Math.max(...rows.map(v=>v.variant.length)))),R=170,rh=22,top=22,H=top+rows.length*rh+26;
 const lo=best*0.97,hi=Math.min(Math.max(...rows.map(v=>v.high_ns||v.median_ns)),best*1.6)*1.01,x=t=>L+(Math.min(t,hi)-lo)/(hi-lo)*(W-L-R);
 const s=sv("svg",{viewBox:`0 0 ${W} ${H}`,role:"img","aria-label":"time of each variant with its 95 % interval"});
 for(const t of ticks(lo,hi,5)){s.append(sv("line",{class:"grid",x1:x(t),x2:x(t),y1:top-4,y2:H-24}));s.append(sv("text",{x:x(t),y:H-8,"text-anchor":"middle"},ns(t)))}
 s.append(sv("rect",{x:x(best),y:top-4,width:Math.max(1,x(best*1.01)-x(best)),height:H-20-top,fill:"var(--good)",opacity:.10}));
 s.append(sv("text",{x:x(best),y:top-9,class:"faint"},"tie zone: 1 %"));
 rows.forEach((v,i)=>{const y=top+i*rh+rh/2,win=v.variant===p.winner,c=win?"var(--good)":v.final_round?"var(--accent)":"var(--faint)",g=sv("g");
  g.append(sv("rect",{x:0,y:y-rh/2,width:W,height:rh,fill:"transparent"}));
  g.append(sv("text",{class:"id",x:L-14,y:y+4,"text-anchor":"end"},shorten(v.variant,58)));
  const beyond=v.median_ns>hi;
  if(v.high_ns>0&&!beyond)g.append(sv("line",{x1:x(Math.max(v.low_ns,lo)),x2:x(v.high_ns),y1:y,y2:y,stroke:c,"stroke-width":3,"stroke-linecap":"round",opacity:.45}));
  g.append(beyond?sv("text",{x:x(hi)-2,y:y+4,"text-anchor":"end",class:"faint"},"▸"):sv("circle",{cx:x(v.median_ns),cy:y,r:win?6:4.5,fill:c}));
  g.append(sv("text",{x:W-R+16,y:y+4},ns(v.median_ns)));
  g.append(sv("text",{x:W,y:y+4,"text-anchor":"end",style:"fill:"+c},win?"winner":v.tied?"tie":pct(v.median_ns/best-1)));
  s.append(hint(g,v.variant+"\n"+ns(v.median_ns)+" ("+ns(v.low_ns)+" to "+ns(v.high_ns)+"), "+(v.final_round?"alone, at its own steady state":"in "+STAGE[v.stage||"screen"])+(v.relative_error>=0?"\nerror "+v.relative_error.toExponential(1):"")+(v.reason?"\n"+v.reason:"")))});
 return s}

// How many were left, and what took each out.
function remaining(p){
 const outs=p.variants.filter(v=>v.out_seconds>0).sort((a,b)=>a.out_seconds-b.out_seconds),total=p.variants.filter(v=>v.outcome!=="untried").length;
 if(!outs.length)return el("p",{},"Nobody was taken out.");
 const end=Math.max(p.seconds_total||0,outs[outs.length-1].out_seconds),W=1070,H=190,L=46,B=26,T=10,x=t=>L+t/end*(W-L-12),y=n=>T+(1-n/total)*(H-T-B);
 const s=sv("svg",{viewBox:`0 0 ${W} ${H}`,role:"img","aria-label":"variants that were left over time"});
 for(const t of ticks(0,total,4))if(Number.isInteger(t)){s.append(sv("line",{class:"grid",x1:L,x2:W-12,y1:y(t),y2:y(t)}));s.append(sv("text",{x:L-8,y:y(t)+4,"text-anchor":"end"},t))}
 for(const t of ticks(0,end,8)){s.append(sv("text",{x:x(t),y:H-6,"text-anchor":"middle"},sec(t)))}
 let path=`M${x(0)},${y(total)}`,n=total;
 for(const v of outs){path+=`H${x(v.out_seconds)}`;n--;path+=`V${y(n)}`}
 s.append(sv("path",{d:path+`H${x(end)}`,fill:"none",stroke:"var(--soft)","stroke-width":2}));
 n=total;const hue={dropped:"var(--accent)",wrong:"var(--bad)",failed:"var(--warn)"};
 for(const v of outs){n--;s.append(hint(sv("circle",{cx:x(v.out_seconds),cy:y(n),r:4.5,fill:hue[v.outcome]||"var(--faint)",stroke:"var(--card)","stroke-width":1}),
  sec(v.out_seconds)+", "+(STAGE[v.stage]||v.stage)+"\n"+v.variant+"\n"+OUT[v.outcome]+": "+v.reason))}
 return el("div",{},s,el("div",{class:"legend"},["dropped","wrong","failed"].filter(o=>outs.some(v=>v.outcome===o)).map(o=>el("span",{},el("i",{style:"background:"+hue[o]}),OUT[o]))))}

// What the device said while the finalists ran, each at its own steady state.
function telemetry(p){
 const who=p.variants.filter(v=>(v.telemetry||[]).some(t=>t.clock_mhz!=null||t.power_watts!=null));
 if(!who.length)return el("p",{},"This device tells neither its clock nor its power.");
 const t0=Math.min(...who.flatMap(v=>v.telemetry.map(t=>t.at_ns))),t1=Math.max(...who.flatMap(v=>v.telemetry.map(t=>t.at_ns))),end=Math.max((t1-t0)/1e9,1e-3),box=el("div");
 for(const [key,label,unit] of [["clock_mhz","Clock","MHz"],["power_watts","Power","W"],["temperature_celsius","Temperature","°C"]]){
  const values=who.flatMap(v=>v.telemetry.map(t=>t[key])).filter(v=>v!=null);if(!values.length)continue;
  let lo=Math.min(...values),hi=Math.max(...values);const pad=Math.max((hi-lo)*.12,hi*.004);lo-=pad;hi+=pad;
  const W=1070,H=150,L=62,B=24,T=18,x=t=>L+(t-t0)/1e9/end*(W-L-12),y=v=>T+(1-(v-lo)/(hi-lo))*(H-T-B),s=sv("svg",{viewBox:`0 0 ${W} ${H}`,role:"img","aria-label":label+" over time"});
  for(const t of ticks(lo,hi,3)){s.append(sv("line",{class:"grid",x1:L,x2:W-12,y1:y(t),y2:y(t)}));s.append(sv("text",{x:L-8,y:y(t)+4,"text-anchor":"end"},t))}
  for(const t of ticks(0,end,8))s.append(sv("text",{x:x(t0+t*1e9),y:H-4,"text-anchor":"middle"},sec(t)));
  s.append(sv("text",{x:4,y:11},label+", "+unit));
  who.forEach((v,i)=>{const dots=v.telemetry.filter(t=>t[key]!=null);let last=null,path="";
   for(const t of dots){path+=(last!=null&&t.at_ns-last<80e6?"L":"M")+x(t.at_ns).toFixed(1)+","+y(t[key]).toFixed(1);last=t.at_ns}
   s.append(sv("path",{d:path,fill:"none",stroke:color(i),"stroke-width":2}));
   for(const t of dots)s.append(hint(sv("circle",{cx:x(t.at_ns),cy:y(t[key]),r:2.6,fill:color(i)}),v.variant+"\n"+(+t[key].toPrecision(5))+" "+unit+" at "+sec((t.at_ns-t0)/1e9)))});
  box.append(s)}
 box.append(el("div",{class:"legend"},who.map((v,i)=>el("span",{},el("i",{style:"background:"+color(i)}),el("span",{class:"id"},v.variant)))));
 return box}

function reasons(p){
 const outs=p.variants.filter(v=>v.reason&&v.variant!==p.winner).sort((a,b)=>(a.out_seconds||1e9)-(b.out_seconds||1e9));
 if(!outs.length)return null;
 return el("details",{},el("summary",{},`Why ${outs.length} variants are out`),el("table",{},el("tr",{},el("th",{class:"n"},"after"),el("th",{},"stage"),el("th",{},"variant"),el("th",{},"outcome"),el("th",{},"why")),
  outs.map(v=>el("tr",{},el("td",{class:"n"},v.out_seconds?sec(v.out_seconds):"—"),el("td",{},STAGE[v.stage||""]||v.stage),el("td",{class:"id wrap"},v.variant),el("td",{},el("span",{class:"pill "+v.outcome},v.blocked?"blocked":OUT[v.outcome])),el("td",{class:"wrap"},v.reason)))))}

function fact(name,value){return value==null||value===""?null:el("div",{},el("dt",{},name),el("dd",{},value))}
function section(p,i){
 const card=el("section",{class:"card",id:"p"+i},el("h2",{class:"wrap"},p.operation||p.problem),el("p",{class:"id wrap"},p.problem));
 if(p.error){card.append(el("p",{class:"error wrap"},p.error));return card}
 const s=p.seconds||{},n=o=>p.variants.filter(v=>v.outcome===o).length;
 card.append(el("p",{},el("span",{class:"pill winner"},"winner")," ",el("span",{class:"id"},p.winner)));
 card.append(el("dl",{class:"facts"},fact("speed over the default",p.gain?p.gain.toFixed(2)+"×":"unknown"),fact("variants",p.variants.length),fact("timed",n("timed")),fact("dropped",n("dropped")),fact("wrong or failed",n("wrong")+n("failed")),fact("not tried",n("untried")||""),fact("data",p.data),
  fact("compiling",s.compile!=null?sec(s.compile):""),fact("verifying",s.verify!=null?sec(s.verify):""),fact("screening",s.screen!=null?sec(s.screen):""),fact("finals",s.finals!=null?sec(s.finals):""),fact("device time",s.device!=null?sec(s.device):""),fact("longest soak",s.soak?sec(s.soak):"")));
 for(const t of [p.note,p.budget_spent?"The budget ended the tuning early: what was known by then decided.":"",p.kept_incumbent?"Another was faster, but not provably by the 3 % that replacing a settled winner asks for.":""])if(t)card.append(el("p",{class:"note wrap"},t));
 card.append(el("h3",{},"Time of one launch, median and 95 % interval"));
 const hold=el("div",{},forest(p,false));card.append(hold);
 const count=p.variants.filter(v=>v.median_ns>0).length;
 if(count>16){const b=el("button",{type:"button"},`Show all ${count} that were timed`);b.onclick=()=>{hold.replaceChildren(forest(p,true));b.remove()};card.append(b)}
 card.append(el("h3",{},"Who was left, and when the others went"),remaining(p));
 const why=reasons(p);if(why)card.append(why);
 card.append(el("h3",{},"The device during the finals"),telemetry(p));
 if(p.signature&&p.signature.inputs){card.append(el("h3",{},"What the data looks like to the wires"),el("table",{},el("tr",{},["input","toggles along the last dimension","along the one before","zeros","bits set","spread of exponents"].map((h,k)=>el("th",{class:k?"n":""},h))),
  p.signature.inputs.map(t=>el("tr",{},el("td",{class:"id"},t.name),[t.toggles_inner,t.toggles_outer,t.zeros,t.ones].map(v=>el("td",{class:"n"},(100*v).toFixed(1)+" %")),el("td",{class:"n"},(+t.exponent_spread).toFixed(2))))))}
 return card}

const app=document.getElementById("app"),ok=D.problems.filter(p=>!p.error);
app.append(el("h1",{},"Tuning report"),el("p",{},`${D.device.product} · ${D.device.target} · driver ${D.device.driver||"—"}`),el("p",{},`${ok.length} of ${D.problems.length} problems tuned`+(D.shard?`, shard ${D.shard}`:"")));
app.append(el("div",{class:"card"},el("table",{},el("tr",{},el("th",{},"problem"),el("th",{},"winner"),el("th",{class:"n"},"time"),el("th",{class:"n"},"over default"),el("th",{class:"n"},"variants"),el("th",{class:"n"},"took")),
 D.problems.map((p,i)=>{const w=(p.variants||[]).find(v=>v.variant===p.winner);return el("tr",{},el("td",{class:"wrap"},el("a",{href:"#p"+i,class:"id"},p.problem)),p.error?el("td",{colspan:5,class:"error wrap"},p.error):[el("td",{class:"id wrap"},p.winner),el("td",{class:"n"},w&&w.median_ns?ns(w.median_ns):"—"),el("td",{class:"n"},p.gain?p.gain.toFixed(2)+"×":"—"),el("td",{class:"n"},p.variants.length),el("td",{class:"n"},sec(p.seconds_total||0))])}))));
D.problems.forEach((p,i)=>app.append(section(p,i)));
app.append(el("footer",{},"Times are medians; intervals hold the median with 95 % confidence. Green marks the winner and its tie zone, blue the finalists, grey who went before. Everything in this page is in this file."));
)js";

}  // namespace

std::string TunePage(absl::string_view json) {
  std::string safe;
  safe.reserve(json.size());
  // "</script>" must not end the data, whatever a compiler printed.
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe.push_back(c);
    }
  }
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>Whet tuning report</title>\n<style>";
  page += kStyle;
  page +=
      "</style></head>\n<body><main id=\"app\"></main><div id=\"tip\"></div>\n"
      "<noscript>This report draws its plots with the script that it holds; its data is below, as "
      "JSON.</noscript>\n<script type=\"application/json\" id=\"whet-data\">";
  page += safe;
  page += "</script>\n<script>";
  page += kScript;
  page += "</script></body></html>\n";
  return page;
}

}  // namespace whet
