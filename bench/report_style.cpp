// SPDX-License-Identifier: Apache-2.0
// Holds the style sheet of a report's page as text.
#include "bench/report_style.hpp"

namespace lockstep::bench {
namespace {

// The style has no < and &, so that the page is valid XML.
constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#14181f;--pale:#566070;--rule:#dde1e7;--grid:#e8ebf0;
--ours:#0072b2;--theirs0:#c2500a;--theirs1:#00805c;--theirs2:#a2487f;--theirs3:#8a6a00;--limit:#6b7280;
--same:#7f8794;--good:#00664a;--bad:#b3261e;--look:#8a5a00;--good-back:#e3f4ee;--bad-back:#fdecea;--look-back:#fdf3df;
--q0:#e6f0f9;--q1:#d3e5f4;--q2:#b9d6ec;--q3:#99c5e3;--q4:#6aabd4;--q5:#4290c4;--q6:#2272ae;--q7:#0f5592;--q8:#08376b;
--v-low:#14181f;--v-high:#fff;--slow:#d6006c}
@media screen and (prefers-color-scheme:dark){:root{--page:#101318;--card:#191d24;--ink:#e7eaef;--pale:#a0a9b7;
--rule:#323945;--grid:#272d37;--ours:#58b4ec;--theirs0:#f2955a;--theirs1:#3fc49c;--theirs2:#e39bc6;--theirs3:#e5c14e;
--limit:#8d97a6;--same:#9aa3b0;--good:#5fd3a9;--bad:#ff8b80;--look:#f0be5c;--good-back:#12302a;
--bad-back:#3d1c1a;--look-back:#35290f;
--q0:#1c232d;--q1:#1f2f42;--q2:#223e5a;--q3:#255073;--q4:#2a658f;--q5:#3a80ae;--q6:#5a9fca;--q7:#89c0e2;--q8:#c3e1f5;
--v-low:#e7eaef;--v-high:#0d1117;--slow:#ff6cb4}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1320px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:24px;line-height:1.25;margin:0}
h2{font-size:19px;margin:0 0 10px;line-height:1.3}
h3{font-size:16px;margin:0 0 4px;overflow-wrap:anywhere}
p{margin:6px 0;overflow-wrap:anywhere}
a{color:var(--ours)}
code{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.92em}
header p,.pale{color:var(--pale)}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px;margin-top:16px}
.verdict{border-left:6px solid;border-radius:8px;padding:12px 16px;margin-top:14px;font-size:17px}
.verdict p{margin:2px 0}
.verdict p+p{font-size:15px}
.verdict.good{background:var(--good-back);border-color:var(--good)}
.verdict.look{background:var(--look-back);border-color:var(--look)}
.verdict.bad{background:var(--bad-back);border-color:var(--bad)}
.verdict .tone,.also .tone{font-weight:700}
.also{margin:10px 0 0;padding:0;list-style:none}
.also li{margin:6px 0;padding-left:12px;border-left:3px solid var(--rule)}
.good .tone,span.good{color:var(--good)}
.look .tone{color:var(--look)}
.note .tone{color:var(--pale)}
.bad .tone,span.bad{color:var(--bad);font-weight:600}
span.even{color:var(--pale)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:14px 0 0;padding:0;list-style:none}
.tiles li{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:8px 12px}
.tiles b{display:block;font-size:19px;font-variant-numeric:tabular-nums}
.tiles span{color:var(--pale);font-size:13px}
nav{margin-top:14px;line-height:2}
nav a{margin-right:14px;white-space:nowrap}
.group+.group{margin-top:22px;padding-top:18px;border-top:1px solid var(--rule)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:6px 0 4px;padding:0;list-style:none;font-size:13px}
.legend li{display:flex;align-items:center;gap:6px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr));gap:12px 20px;margin:8px 0}
figure{margin:0;min-width:0}
figcaption{font-size:13px;color:var(--pale);margin-bottom:2px}
figcaption b{color:var(--ink)}
svg{display:block}
.chart{width:100%;max-width:560px;height:auto}
.sample{width:28px;height:12px;flex:none}
.key{width:14px;height:12px;flex:none;background:var(--same);opacity:.3}
.chart text,.heat text{font-family:inherit;font-size:11px;fill:var(--pale)}
.tick.y{text-anchor:end}
.tick.x{text-anchor:middle}
.grid{stroke:var(--grid);stroke-width:1}
.grid.one{stroke:var(--ink);stroke-width:1.4}
.axis{stroke:var(--rule);stroke-width:1}
.ours{--c:var(--ours)}.theirs0{--c:var(--theirs0)}.theirs1{--c:var(--theirs1)}.theirs2{--c:var(--theirs2)}
.theirs3{--c:var(--theirs3)}.limit{--c:var(--limit)}
.curve{fill:none;stroke:var(--c);stroke-width:1.7;stroke-linejoin:round}
.theirs0 .curve,.theirs2 .curve{stroke-dasharray:6 3}
.theirs1 .curve,.theirs3 .curve{stroke-dasharray:2 3}
.limit .curve{stroke-dasharray:1 3;stroke-width:2}
.band{fill:var(--c);fill-opacity:.2;stroke:none}
.dot{fill:var(--c);stroke:transparent;stroke-width:9}
.dot.hollow{fill:var(--card);stroke:var(--c);stroke-width:1.5}
.dot.hidden{fill:transparent}
.reach{fill:var(--c);fill-opacity:.35}
.same{fill:var(--same);fill-opacity:.22}
.scroll{overflow-x:auto;max-width:100%;margin:8px 0}
.scroll:focus-visible{outline:2px solid var(--ours)}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:3px 10px;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top}
thead th{color:var(--pale);font-weight:600;border-bottom:1px solid var(--rule)}
tbody th{font-weight:600;position:sticky;left:0;background:var(--card)}
.n{text-align:right}
th em{font-style:normal;font-size:11px;display:block}
tr.wrong em{color:var(--bad)}
tr.noisy em{color:var(--look)}
tr.wrong td,tr.wrong th{background:var(--bad-back)}
tr.noisy td,tr.noisy th{background:var(--look-back)}
.facts th,.facts td{white-space:normal;overflow-wrap:anywhere;min-width:90px}
details{margin-top:8px}
summary{cursor:pointer;color:var(--ours);font-size:14px}
ul.slow{margin:6px 0 10px;padding-left:20px}
.heat text{text-anchor:middle;font-size:10px}
.heat .tick.y{text-anchor:end}
.heat.small{width:100%;max-width:460px;min-width:290px;height:auto}
.heat.middle{width:100%;min-width:600px;max-width:820px;height:auto}
.heat.large{width:100%;min-width:480px;max-width:820px;height:auto}
.charts.wide{grid-template-columns:repeat(auto-fill,minmax(min(100%,560px),1fr))}
.heat .border{stroke:var(--ink);stroke-width:1.5;fill:none}
.heat .slow{fill:none;stroke:var(--slow);stroke-width:3}
.heat .none{fill:none}
.heat rect:not(.slow){stroke:var(--card);stroke-width:1}
.q0{fill:var(--q0)}.q1{fill:var(--q1)}.q2{fill:var(--q2)}.q3{fill:var(--q3)}.q4{fill:var(--q4)}.q5{fill:var(--q5)}
.q6{fill:var(--q6)}.q7{fill:var(--q7)}.q8{fill:var(--q8)}
.heat .v0,.heat .v1,.heat .v2,.heat .v3,.heat .v4{fill:var(--v-low)}
.heat .v5,.heat .v6,.heat .v7,.heat .v8{fill:var(--v-high)}
.scale{display:flex;align-items:center;gap:8px;font-size:12px;color:var(--pale)}
.scale svg{width:108px;height:10px}
.topology svg{min-width:600px;max-width:100%;height:auto;border-radius:8px}
@media screen and (prefers-color-scheme:dark){.topology svg{filter:invert(.9) hue-rotate(180deg)}}
footer{color:var(--pale);font-size:13px;margin-top:16px}
@media (max-width:520px){main{padding:12px 8px 32px}section{padding:12px 10px}h1{font-size:20px}.verdict{font-size:16px;padding:10px 12px}
.tiles{grid-template-columns:1fr 1fr}th,td{padding:3px 7px}}
@page{size:A4 landscape;margin:10mm}
@media print{body{background:#fff;font-size:11px}main{max-width:none;padding:0}section{break-inside:auto;border:0;padding:8px 0}
figure,tr{break-inside:avoid}h2,h3,.legend,summary{break-after:avoid}.charts{grid-template-columns:1fr 1fr 1fr}.scroll{overflow:visible}table{font-size:7.5px}th,td{padding:1px 3px}
tbody th{position:static}nav{display:none}details::details-content{content-visibility:visible;height:auto}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

}  // namespace

std::string_view report_style() { return style; }

}  // namespace lockstep::bench
