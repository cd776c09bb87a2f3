$( A small part of set.mm (28-Dec-2020, public domain, CC0): a few theorems and all that their proofs use. $)
$c ( ) -> -. wff |- <-> \/ /\ , A. setvar class = T. E. F/ [ / ] e. { | } F/_ _V u. i^i C_ U. $.
$v ph ps ch th ta et x y z w v t A B C D V W $.
wph $f wff ph $.
wps $f wff ps $.
wch $f wff ch $.
wth $f wff th $.
wta $f wff ta $.
wet $f wff et $.
vx $f setvar x $.
vy $f setvar y $.
vz $f setvar z $.
vw $f setvar w $.
vv $f setvar v $.
vt $f setvar t $.
cA $f class A $.
cB $f class B $.
cC $f class C $.
cD $f class D $.
cV $f class V $.
cW $f class W $.
wn $a wff -. ph $.
wi $a wff ( ph -> ps ) $.
${
  min $e |- ph $.
  maj $e |- ( ph -> ps ) $.
  ax-mp $a |- ps $.
$}
ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $.
ax-3 $a |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $.
${
  mp2.1 $e |- ph $.
  mp2.2 $e |- ps $.
  mp2.3 $e |- ( ph -> ( ps -> ch ) ) $.
  mp2 $p |- ch $= ( wi ax-mp ) BCEABCGDFHH $.
$}
${
  a1i.1 $e |- ph $.
  a1i $p |- ( ps -> ph ) $= ( wi ax-1 ax-mp ) ABADCABEF $.
$}
${
  a2i.1 $e |- ( ph -> ( ps -> ch ) ) $.
  a2i $p |- ( ( ph -> ps ) -> ( ph -> ch ) ) $= ( wi ax-2 ax-mp ) ABCEEABEACEEDABCFG $.
$}
${
  mpd.1 $e |- ( ph -> ps ) $.
  mpd.2 $e |- ( ph -> ( ps -> ch ) ) $.
  mpd $p |- ( ph -> ch ) $= ( wi a2i ax-mp ) ABFACFDABCEGH $.
$}
${
  imim2i.1 $e |- ( ph -> ps ) $.
  imim2i $p |- ( ( ch -> ph ) -> ( ch -> ps ) ) $= ( wi a1i a2i ) CABABECDFG $.
$}
${
  syl.1 $e |- ( ph -> ps ) $.
  syl.2 $e |- ( ps -> ch ) $.
  syl $p |- ( ph -> ch ) $= ( wi a1i mpd ) ABCDBCFAEGH $.
$}
${
  3syl.1 $e |- ( ph -> ps ) $.
  3syl.2 $e |- ( ps -> ch ) $.
  3syl.3 $e |- ( ch -> th ) $.
  3syl $p |- ( ph -> th ) $= ( syl ) ACDABCEFHGH $.
$}
${
  4syl.1 $e |- ( ph -> ps ) $.
  4syl.2 $e |- ( ps -> ch ) $.
  4syl.3 $e |- ( ch -> th ) $.
  4syl.4 $e |- ( th -> ta ) $.
  4syl $p |- ( ph -> ta ) $= ( 3syl syl ) ADEABCDFGHJIK $.
$}
${
  mpi.1 $e |- ps $.
  mpi.2 $e |- ( ph -> ( ps -> ch ) ) $.
  mpi $p |- ( ph -> ch ) $= ( a1i mpd ) ABCBADFEG $.
$}
id $p |- ( ph -> ph ) $= ( wi ax-1 mpd ) AAABZAAACAECD $.
idd $p |- ( ph -> ( ps -> ps ) ) $= ( wi id a1i ) BBCABDE $.
${
  a1d.1 $e |- ( ph -> ps ) $.
  a1d $p |- ( ph -> ( ch -> ps ) ) $= ( wi ax-1 syl ) ABCBEDBCFG $.
$}
${
  a2d.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  a2d $p |- ( ph -> ( ( ps -> ch ) -> ( ps -> th ) ) ) $= ( wi ax-2 syl ) ABCDFFBCFBDFFEBCDGH $.
$}
${
  sylcom.1 $e |- ( ph -> ( ps -> ch ) ) $.
  sylcom.2 $e |- ( ps -> ( ch -> th ) ) $.
  sylcom $p |- ( ph -> ( ps -> th ) ) $= ( wi a2i syl ) ABCGBDGEBCDFHI $.
$}
${
  syl5com.1 $e |- ( ph -> ps ) $.
  syl5com.2 $e |- ( ch -> ( ps -> th ) ) $.
  syl5com $p |- ( ph -> ( ch -> th ) ) $= ( a1d sylcom ) ACBDABCEGFH $.
$}
${
  com12.1 $e |- ( ph -> ( ps -> ch ) ) $.
  com12 $p |- ( ps -> ( ph -> ch ) ) $= ( id syl5com ) BBACBEDF $.
$}
${
  syl5.1 $e |- ( ph -> ps ) $.
  syl5.2 $e |- ( ch -> ( ps -> th ) ) $.
  syl5 $p |- ( ch -> ( ph -> th ) ) $= ( syl5com com12 ) ACDABCDEFGH $.
$}
${
  syl6.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6.2 $e |- ( ch -> th ) $.
  syl6 $p |- ( ph -> ( ps -> th ) ) $= ( wi a1i sylcom ) ABCDECDGBFHI $.
$}
${
  syl6com.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6com.2 $e |- ( ch -> th ) $.
  syl6com $p |- ( ps -> ( ph -> th ) ) $= ( syl6 com12 ) ABDABCDEFGH $.
$}
${
  mpcom.1 $e |- ( ps -> ph ) $.
  mpcom.2 $e |- ( ph -> ( ps -> ch ) ) $.
  mpcom $p |- ( ps -> ch ) $= ( com12 mpd ) BACDABCEFG $.
$}
${
  syl2im.1 $e |- ( ph -> ps ) $.
  syl2im.2 $e |- ( ch -> th ) $.
  syl2im.3 $e |- ( ps -> ( th -> ta ) ) $.
  syl2im $p |- ( ph -> ( ch -> ta ) ) $= ( wi syl5 syl ) ABCEIFCDBEGHJK $.
$}
pm2.27 $p |- ( ph -> ( ( ph -> ps ) -> ps ) ) $= ( wi id com12 ) ABCZABFDE $.
${
  mpdd.1 $e |- ( ph -> ( ps -> ch ) ) $.
  mpdd.2 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  mpdd $p |- ( ph -> ( ps -> th ) ) $= ( wi a2d mpd ) ABCGBDGEABCDFHI $.
$}
${
  syld.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syld.2 $e |- ( ph -> ( ch -> th ) ) $.
  syld $p |- ( ph -> ( ps -> th ) ) $= ( wi a1d mpdd ) ABCDEACDGBFHI $.
$}
${
  pm2.43i.1 $e |- ( ph -> ( ph -> ps ) ) $.
  pm2.43i $p |- ( ph -> ps ) $= ( id mpd ) AABADCE $.
$}
pm2.43 $p |- ( ( ph -> ( ph -> ps ) ) -> ( ph -> ps ) ) $= ( wi pm2.27 a2i ) AABCBABDE $.
${
  imim2d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imim2d $p |- ( ph -> ( ( th -> ps ) -> ( th -> ch ) ) ) $= ( wi a1d a2d ) ADBCABCFDEGH $.
$}
imim2 $p |- ( ( ph -> ps ) -> ( ( ch -> ph ) -> ( ch -> ps ) ) ) $= ( wi id imim2d ) ABDZABCGEF $.
${
  imim12i.1 $e |- ( ph -> ps ) $.
  imim12i.2 $e |- ( ch -> th ) $.
  imim12i $p |- ( ( ps -> ch ) -> ( ph -> th ) ) $= ( wi imim2i syl5 ) ABBCGDECDBFHI $.
$}
${
  imim1i.1 $e |- ( ph -> ps ) $.
  imim1i $p |- ( ( ps -> ch ) -> ( ph -> ch ) ) $= ( id imim12i ) ABCCDCEF $.
$}
${
  imim3i.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imim3i $p |- ( ( th -> ph ) -> ( ( th -> ps ) -> ( th -> ch ) ) ) $= ( wi imim2i a2d )
    DAFDBCABCFDEGH $.
$}
${
  sylc.1 $e |- ( ph -> ps ) $.
  sylc.2 $e |- ( ph -> ch ) $.
  sylc.3 $e |- ( ps -> ( ch -> th ) ) $.
  sylc $p |- ( ph -> th ) $= ( syl2im pm2.43i ) ADABACDEFGHI $.
$}
${
  syl6mpi.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6mpi.2 $e |- th $.
  syl6mpi.3 $e |- ( ch -> ( th -> ta ) ) $.
  syl6mpi $p |- ( ph -> ( ps -> ta ) ) $= ( mpi syl6 ) ABCEFCDEGHIJ $.
$}
${
  syl6c.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6c.2 $e |- ( ph -> ( ps -> th ) ) $.
  syl6c.3 $e |- ( ch -> ( th -> ta ) ) $.
  syl6c $p |- ( ph -> ( ps -> ta ) ) $= ( wi syl6 mpdd ) ABDEGABCDEIFHJK $.
$}
${
  syldd.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  syldd.2 $e |- ( ph -> ( ps -> ( th -> ta ) ) ) $.
  syldd $p |- ( ph -> ( ps -> ( ch -> ta ) ) ) $= ( wi imim2 syl6c ) ABDEHCDHCEHGFDECIJ $.
$}
${
  syl5d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl5d.2 $e |- ( ph -> ( th -> ( ch -> ta ) ) ) $.
  syl5d $p |- ( ph -> ( th -> ( ps -> ta ) ) ) $= ( wi a1d syldd ) ADBCEABCHDFIGJ $.
$}
${
  syl9.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl9.2 $e |- ( th -> ( ch -> ta ) ) $.
  syl9 $p |- ( ph -> ( th -> ( ps -> ta ) ) ) $= ( wi a1i syl5d ) ABCDEFDCEHHAGIJ $.
$}
${
  syl9r.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl9r.2 $e |- ( th -> ( ch -> ta ) ) $.
  syl9r $p |- ( th -> ( ph -> ( ps -> ta ) ) ) $= ( wi syl9 com12 ) ADBEHABCDEFGIJ $.
$}
${
  imim12d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imim12d.2 $e |- ( ph -> ( th -> ta ) ) $.
  imim12d $p |- ( ph -> ( ( ch -> th ) -> ( ps -> ta ) ) ) $= ( wi imim2d syl5d ) ABCCDHEFADECGIJ $.
$}
${
  imim1d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imim1d $p |- ( ph -> ( ( ch -> th ) -> ( ps -> th ) ) ) $= ( idd imim12d ) ABCDDEADFG $.
$}
${
  com3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  com23 $p |- ( ph -> ( ch -> ( ps -> th ) ) ) $= ( wi pm2.27 syl9 ) ABCDFCDECDGH $.
$}
${
  com3r.com3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  com3r $p |- ( ch -> ( ph -> ( ps -> th ) ) ) $= ( wi com23 com12 ) ACBDFABCDEGH $.
$}
${
  com3l.com3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  com3l $p |- ( ps -> ( ch -> ( ph -> th ) ) ) $= ( com3r ) CABDABCDEFF $.
$}
pm2.04 $p |- ( ( ph -> ( ps -> ch ) ) -> ( ps -> ( ph -> ch ) ) ) $= ( wi id com23 ) ABCDDZABCGEF
    $.
${
  pm2.86d.1 $e |- ( ph -> ( ( ps -> ch ) -> ( ps -> th ) ) ) $.
  pm2.86d $p |- ( ph -> ( ps -> ( ch -> th ) ) ) $= ( wi ax-1 syl5 com23 ) ACBDCBCFABDFCBGEHI $.
$}
con4 $p |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $= ( ax-3 ) ABC $.
${
  con4d.1 $e |- ( ph -> ( -. ps -> -. ch ) ) $.
  con4d $p |- ( ph -> ( ch -> ps ) ) $= ( wn wi con4 syl ) ABECEFCBFDBCGH $.
$}
${
  pm2.21d.1 $e |- ( ph -> -. ps ) $.
  pm2.21d $p |- ( ph -> ( ps -> ch ) ) $= ( wn a1d con4d ) ACBABECEDFG $.
$}
pm2.21 $p |- ( -. ph -> ( ph -> ps ) ) $= ( wn id pm2.21d ) ACZABFDE $.
pm2.24 $p |- ( ph -> ( -. ph -> ps ) ) $= ( wn pm2.21 com12 ) ACABABDE $.
pm2.18 $p |- ( ( -. ph -> ph ) -> ph ) $= ( wn wi pm2.21 a2i con4d pm2.43i ) ABZACZAIAIHAIBZAJDEFG
    $.
${
  pm2.18d.1 $e |- ( ph -> ( -. ps -> ps ) ) $.
  pm2.18d $p |- ( ph -> ps ) $= ( wn wi pm2.18 syl ) ABDBEBCBFG $.
$}
notnot2 $p |- ( -. -. ph -> ph ) $= ( wn pm2.21 pm2.18d ) ABZBAEACD $.
${
  con2d.1 $e |- ( ph -> ( ps -> -. ch ) ) $.
  con2d $p |- ( ph -> ( ch -> -. ps ) ) $= ( wn notnot2 syl5 con4d ) ABEZCIEBACEBFDGH $.
$}
${
  mt2d.1 $e |- ( ph -> ch ) $.
  mt2d.2 $e |- ( ph -> ( ps -> -. ch ) ) $.
  mt2d $p |- ( ph -> -. ps ) $= ( wn con2d mpd ) ACBFDABCEGH $.
$}
${
  nsyl3.1 $e |- ( ph -> -. ps ) $.
  nsyl3.2 $e |- ( ch -> ps ) $.
  nsyl3 $p |- ( ch -> -. ph ) $= ( wn wi a1i mt2d ) CABEABFGCDHI $.
$}
${
  con2i.a $e |- ( ph -> -. ps ) $.
  con2i $p |- ( ps -> -. ph ) $= ( id nsyl3 ) ABBCBDE $.
$}
${
  nsyl.1 $e |- ( ph -> -. ps ) $.
  nsyl.2 $e |- ( ch -> ps ) $.
  nsyl $p |- ( ph -> -. ch ) $= ( nsyl3 con2i ) CAABCDEFG $.
$}
notnot1 $p |- ( ph -> -. -. ph ) $= ( wn id con2i ) ABZAECD $.
${
  con1d.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
  con1d $p |- ( ph -> ( -. ch -> ps ) ) $= ( wn notnot1 syl6 con4d ) ABCEZABECIEDCFGH $.
$}
${
  mt3d.1 $e |- ( ph -> -. ch ) $.
  mt3d.2 $e |- ( ph -> ( -. ps -> ch ) ) $.
  mt3d $p |- ( ph -> ps ) $= ( wn con1d mpd ) ACFBDABCEGH $.
$}
${
  nsyl2.1 $e |- ( ph -> -. ps ) $.
  nsyl2.2 $e |- ( -. ch -> ps ) $.
  nsyl2 $p |- ( ph -> ch ) $= ( wn wi a1i mt3d ) ACBDCFBGAEHI $.
$}
con1 $p |- ( ( -. ph -> ps ) -> ( -. ps -> ph ) ) $= ( wn wi id con1d ) ACBDZABGEF $.
${
  con1i.1 $e |- ( -. ph -> ps ) $.
  con1i $p |- ( -. ps -> ph ) $= ( wn id nsyl2 ) BDZBAGECF $.
$}
${
  con3d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  con3d $p |- ( ph -> ( -. ch -> -. ps ) ) $= ( wn notnot2 syl5 con1d ) ABEZCIEBACBFDGH $.
$}
con3 $p |- ( ( ph -> ps ) -> ( -. ps -> -. ph ) ) $= ( wi id con3d ) ABCZABFDE $.
${
  con3i.a $e |- ( ph -> ps ) $.
  con3i $p |- ( -. ps -> -. ph ) $= ( wn id nsyl ) BDZBAGECF $.
$}
${
  con3rr3.1 $e |- ( ph -> ( ps -> ch ) ) $.
  con3rr3 $p |- ( -. ch -> ( ph -> -. ps ) ) $= ( wn con3d com12 ) ACEBEABCDFG $.
$}
${
  nsyl4.1 $e |- ( ph -> ps ) $.
  nsyl4.2 $e |- ( -. ph -> ch ) $.
  nsyl4 $p |- ( -. ch -> ps ) $= ( wn con1i syl ) CFABACEGDH $.
$}
pm3.2im $p |- ( ph -> ( ps -> -. ( ph -> -. ps ) ) ) $= ( wn wi pm2.27 con2d ) AABCZDBAGEF $.
${
  impi.1 $e |- ( ph -> ( ps -> ch ) ) $.
  impi $p |- ( -. ( ph -> -. ps ) -> ch ) $= ( wn wi con3rr3 con1i ) CABEFABCDGH $.
$}
${
  expi.1 $e |- ( -. ( ph -> -. ps ) -> ch ) $.
  expi $p |- ( ph -> ( ps -> ch ) ) $= ( wn wi pm3.2im syl6 ) ABABEFECABGDH $.
$}
simprim $p |- ( -. ( ph -> -. ps ) -> ps ) $= ( idd impi ) ABBABCD $.
simplim $p |- ( -. ( ph -> ps ) -> ph ) $= ( wi pm2.21 con1i ) AABCABDE $.
${
  pm2.61d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  pm2.61d.2 $e |- ( ph -> ( -. ps -> ch ) ) $.
  pm2.61d $p |- ( ph -> ch ) $= ( wn con1d syld pm2.18d ) ACACFBCABCEGDHI $.
$}
${
  pm2.61d1.1 $e |- ( ph -> ( ps -> ch ) ) $.
  pm2.61d1.2 $e |- ( -. ps -> ch ) $.
  pm2.61d1 $p |- ( ph -> ch ) $= ( wn wi a1i pm2.61d ) ABCDBFCGAEHI $.
$}
${
  pm2.61d2.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
  pm2.61d2.2 $e |- ( ps -> ch ) $.
  pm2.61d2 $p |- ( ph -> ch ) $= ( wi a1i pm2.61d ) ABCBCFAEGDH $.
$}
${
  ja.1 $e |- ( -. ph -> ch ) $.
  ja.2 $e |- ( ps -> ch ) $.
  ja $p |- ( ( ph -> ps ) -> ch ) $= ( wi imim2i pm2.61d1 ) ABFACBCAEGDH $.
$}
${
  pm2.61i.1 $e |- ( ph -> ps ) $.
  pm2.61i.2 $e |- ( -. ph -> ps ) $.
  pm2.61i $p |- ps $= ( wi id ja ax-mp ) AAEBAFAABDCGH $.
$}
wb $a wff ( ph <-> ps ) $.
df-bi $a |- -. ( ( ( ph <-> ps ) -> -. ( ( ph -> ps ) -> -. ( ps -> ph ) ) ) -> -. ( -. ( ( ph ->
    ps ) -> -. ( ps -> ph ) ) -> ( ph <-> ps ) ) ) $.
impbi $p |- ( ( ph -> ps ) -> ( ( ps -> ph ) -> ( ph <-> ps ) ) ) $= ( wi wb wn df-bi simprim
    ax-mp expi ) ABCZBACZABDZLJKECEZCZMLCZECEOABFNOGHI $.
${
  impbii.1 $e |- ( ph -> ps ) $.
  impbii.2 $e |- ( ps -> ph ) $.
  impbii $p |- ( ph <-> ps ) $= ( wi wb impbi mp2 ) ABEBAEABFCDABGH $.
$}
${
  impbidd.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  impbidd.2 $e |- ( ph -> ( ps -> ( th -> ch ) ) ) $.
  impbidd $p |- ( ph -> ( ps -> ( ch <-> th ) ) ) $= ( wi wb impbi syl6c ) ABCDGDCGCDHEFCDIJ $.
$}
${
  impbid21d.1 $e |- ( ps -> ( ch -> th ) ) $.
  impbid21d.2 $e |- ( ph -> ( th -> ch ) ) $.
  impbid21d $p |- ( ph -> ( ps -> ( ch <-> th ) ) ) $= ( wi a1i a1d impbidd ) ABCDBCDGGAEHADCGBFIJ
    $.
$}
${
  impbid.1 $e |- ( ph -> ( ps -> ch ) ) $.
  impbid.2 $e |- ( ph -> ( ch -> ps ) ) $.
  impbid $p |- ( ph -> ( ps <-> ch ) ) $= ( wb impbid21d pm2.43i ) ABCFAABCDEGH $.
$}
dfbi1 $p |- ( ( ph <-> ps ) <-> -. ( ( ph -> ps ) -> -. ( ps -> ph ) ) ) $= ( wb wi wn df-bi
    simplim ax-mp impbi impi impbii ) ABCZABDZBADZEDEZLODZOLDE ZDEPABFPQGHMNLABIJK $.
biimp $p |- ( ( ph <-> ps ) -> ( ph -> ps ) ) $= ( wb wi wn df-bi simplim ax-mp syl )
    ABCZABDZBADEZDEZKJMDZMJDEZDENABFNOGHKL GI $.
${
  biimpi.1 $e |- ( ph <-> ps ) $.
  biimpi $p |- ( ph -> ps ) $= ( wb wi biimp ax-mp ) ABDABECABFG $.
$}
${
  sylbi.1 $e |- ( ph <-> ps ) $.
  sylbi.2 $e |- ( ps -> ch ) $.
  sylbi $p |- ( ph -> ch ) $= ( biimpi syl ) ABCABDFEG $.
$}
${
  sylib.1 $e |- ( ph -> ps ) $.
  sylib.2 $e |- ( ps <-> ch ) $.
  sylib $p |- ( ph -> ch ) $= ( biimpi syl ) ABCDBCEFG $.
$}
${
  sylbb.1 $e |- ( ph <-> ps ) $.
  sylbb.2 $e |- ( ps <-> ch ) $.
  sylbb $p |- ( ph -> ch ) $= ( biimpi sylbi ) ABCDBCEFG $.
$}
biimpr $p |- ( ( ph <-> ps ) -> ( ps -> ph ) ) $= ( wb wi wn dfbi1 simprim sylbi )
    ABCABDZBADZEDEJABFIJGH $.
bicom1 $p |- ( ( ph <-> ps ) -> ( ps <-> ph ) ) $= ( wb biimpr biimp impbid ) ABCBAABDABEF $.
bicom $p |- ( ( ph <-> ps ) <-> ( ps <-> ph ) ) $= ( wb bicom1 impbii ) ABCBACABDBADE $.
${
  bicomd.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bicomd $p |- ( ph -> ( ch <-> ps ) ) $= ( wb bicom sylib ) ABCECBEDBCFG $.
$}
${
  bicomi.1 $e |- ( ph <-> ps ) $.
  bicomi $p |- ( ps <-> ph ) $= ( wb bicom1 ax-mp ) ABDBADCABEF $.
$}
${
  impbid1.1 $e |- ( ph -> ( ps -> ch ) ) $.
  impbid1.2 $e |- ( ch -> ps ) $.
  impbid1 $p |- ( ph -> ( ps <-> ch ) ) $= ( wi a1i impbid ) ABCDCBFAEGH $.
$}
${
  impbid2.1 $e |- ( ps -> ch ) $.
  impbid2.2 $e |- ( ph -> ( ch -> ps ) ) $.
  impbid2 $p |- ( ph -> ( ps <-> ch ) ) $= ( impbid1 bicomd ) ACBACBEDFG $.
$}
${
  impcon4bid.1 $e |- ( ph -> ( ps -> ch ) ) $.
  impcon4bid.2 $e |- ( ph -> ( -. ps -> -. ch ) ) $.
  impcon4bid $p |- ( ph -> ( ps <-> ch ) ) $= ( con4d impbid ) ABCDABCEFG $.
$}
${
  biimpri.1 $e |- ( ph <-> ps ) $.
  biimpri $p |- ( ps -> ph ) $= ( bicomi biimpi ) BAABCDE $.
$}
${
  biimpd.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  biimpd $p |- ( ph -> ( ps -> ch ) ) $= ( wb wi biimp syl ) ABCEBCFDBCGH $.
$}
${
  mpbi.min $e |- ph $.
  mpbi.maj $e |- ( ph <-> ps ) $.
  mpbi $p |- ps $= ( biimpi ax-mp ) ABCABDEF $.
$}
${
  mpbir.min $e |- ps $.
  mpbir.maj $e |- ( ph <-> ps ) $.
  mpbir $p |- ph $= ( biimpri ax-mp ) BACABDEF $.
$}
${
  mpbid.min $e |- ( ph -> ps ) $.
  mpbid.maj $e |- ( ph -> ( ps <-> ch ) ) $.
  mpbid $p |- ( ph -> ch ) $= ( biimpd mpd ) ABCDABCEFG $.
$}
${
  mpbii.min $e |- ps $.
  mpbii.maj $e |- ( ph -> ( ps <-> ch ) ) $.
  mpbii $p |- ( ph -> ch ) $= ( a1i mpbid ) ABCBADFEG $.
$}
${
  sylibr.1 $e |- ( ph -> ps ) $.
  sylibr.2 $e |- ( ch <-> ps ) $.
  sylibr $p |- ( ph -> ch ) $= ( biimpri syl ) ABCDCBEFG $.
$}
${
  sylbir.1 $e |- ( ps <-> ph ) $.
  sylbir.2 $e |- ( ps -> ch ) $.
  sylbir $p |- ( ph -> ch ) $= ( biimpri syl ) ABCBADFEG $.
$}
${
  syl5bi.1 $e |- ( ph <-> ps ) $.
  syl5bi.2 $e |- ( ch -> ( ps -> th ) ) $.
  syl5bi $p |- ( ch -> ( ph -> th ) ) $= ( biimpi syl5 ) ABCDABEGFH $.
$}
${
  syl5bir.1 $e |- ( ps <-> ph ) $.
  syl5bir.2 $e |- ( ch -> ( ps -> th ) ) $.
  syl5bir $p |- ( ch -> ( ph -> th ) ) $= ( biimpri syl5 ) ABCDBAEGFH $.
$}
${
  syl5ib.1 $e |- ( ph -> ps ) $.
  syl5ib.2 $e |- ( ch -> ( ps <-> th ) ) $.
  syl5ib $p |- ( ch -> ( ph -> th ) ) $= ( biimpd syl5 ) ABCDECBDFGH $.
$}
${
  syl5ibr.1 $e |- ( ph -> th ) $.
  syl5ibr.2 $e |- ( ch -> ( ps <-> th ) ) $.
  syl5ibr $p |- ( ch -> ( ph -> ps ) ) $= ( bicomd syl5ib ) ADCBECBDFGH $.
$}
${
  syl5ibrcom.syl5ibr.1 $e |- ( ph -> th ) $.
  syl5ibrcom.syl5ibr.2 $e |- ( ch -> ( ps <-> th ) ) $.
  syl5ibrcom $p |- ( ph -> ( ch -> ps ) ) $= ( syl5ibr com12 ) CABABCDEFGH $.
$}
${
  biimprd.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  biimprd $p |- ( ph -> ( ch -> ps ) ) $= ( id syl5ibr ) CBACCEDF $.
$}
${
  biimpcd.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  biimprcd $p |- ( ch -> ( ph -> ps ) ) $= ( id syl5ibrcom ) CBACCEDF $.
$}
${
  syl6ib.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6ib.2 $e |- ( ch <-> th ) $.
  syl6ib $p |- ( ph -> ( ps -> th ) ) $= ( biimpi syl6 ) ABCDECDFGH $.
$}
${
  syl6ibr.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl6ibr.2 $e |- ( th <-> ch ) $.
  syl6ibr $p |- ( ph -> ( ps -> th ) ) $= ( biimpri syl6 ) ABCDEDCFGH $.
$}
${
  syl6bir.1 $e |- ( ph -> ( ch <-> ps ) ) $.
  syl6bir.2 $e |- ( ch -> th ) $.
  syl6bir $p |- ( ph -> ( ps -> th ) ) $= ( biimprd syl6 ) ABCDACBEGFH $.
$}
${
  sylbird.1 $e |- ( ph -> ( ch <-> ps ) ) $.
  sylbird.2 $e |- ( ph -> ( ch -> th ) ) $.
  sylbird $p |- ( ph -> ( ps -> th ) ) $= ( biimprd syld ) ABCDACBEGFH $.
$}
biid $p |- ( ph <-> ph ) $= ( id impbii ) AAABZDC $.
pm5.74 $p |- ( ( ph -> ( ps <-> ch ) ) <-> ( ( ph -> ps ) <-> ( ph -> ch ) ) ) $= ( wb wi biimp
    imim3i biimpr impbid pm2.86d impbidd impbii ) ABCDZEZABEZACEZ
    DZNOPMBCABCFGMCBABCHGIQABCQABCOPFJQACBOPHJKL $.
${
  pm5.74i.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  pm5.74i $p |- ( ( ph -> ps ) <-> ( ph -> ch ) ) $= ( wb wi pm5.74 mpbi ) ABCEFABFACFEDABCGH $.
$}
${
  pm5.74ri.1 $e |- ( ( ph -> ps ) <-> ( ph -> ch ) ) $.
  pm5.74ri $p |- ( ph -> ( ps <-> ch ) ) $= ( wb wi pm5.74 mpbir ) ABCEFABFACFEDABCGH $.
$}
${
  pm5.74d.1 $e |- ( ph -> ( ps -> ( ch <-> th ) ) ) $.
  pm5.74d $p |- ( ph -> ( ( ps -> ch ) <-> ( ps -> th ) ) ) $= ( wb wi pm5.74 sylib )
    ABCDFGBCGBDGFEBCDHI $.
$}
${
  bitri.1 $e |- ( ph <-> ps ) $.
  bitri.2 $e |- ( ps <-> ch ) $.
  bitri $p |- ( ph <-> ch ) $= ( sylbb biimpri sylibr impbii ) ACABCDEFCBABCEGDHI $.
$}
${
  bitr2i.1 $e |- ( ph <-> ps ) $.
  bitr2i.2 $e |- ( ps <-> ch ) $.
  bitr2i $p |- ( ch <-> ph ) $= ( bitri bicomi ) ACABCDEFG $.
$}
${
  bitr3i.1 $e |- ( ps <-> ph ) $.
  bitr3i.2 $e |- ( ps <-> ch ) $.
  bitr3i $p |- ( ph <-> ch ) $= ( bicomi bitri ) ABCBADFEG $.
$}
${
  bitr4i.1 $e |- ( ph <-> ps ) $.
  bitr4i.2 $e |- ( ch <-> ps ) $.
  bitr4i $p |- ( ph <-> ch ) $= ( bicomi bitri ) ABCDCBEFG $.
$}
${
  bitrd.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bitrd.2 $e |- ( ph -> ( ch <-> th ) ) $.
  bitrd $p |- ( ph -> ( ps <-> th ) ) $= ( wi pm5.74i bitri pm5.74ri ) ABDABGACGADGABCEHACDFHIJ $.
$}
${
  syl5bb.1 $e |- ( ph <-> ps ) $.
  syl5bb.2 $e |- ( ch -> ( ps <-> th ) ) $.
  syl5bb $p |- ( ch -> ( ph <-> th ) ) $= ( wb a1i bitrd ) CABDABGCEHFI $.
$}
${
  syl5bbr.1 $e |- ( ps <-> ph ) $.
  syl5bbr.2 $e |- ( ch -> ( ps <-> th ) ) $.
  syl5bbr $p |- ( ch -> ( ph <-> th ) ) $= ( bicomi syl5bb ) ABCDBAEGFH $.
$}
${
  syl6bb.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  syl6bb.2 $e |- ( ch <-> th ) $.
  syl6bb $p |- ( ph -> ( ps <-> th ) ) $= ( wb a1i bitrd ) ABCDECDGAFHI $.
$}
${
  syl6bbr.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  syl6bbr.2 $e |- ( th <-> ch ) $.
  syl6bbr $p |- ( ph -> ( ps <-> th ) ) $= ( bicomi syl6bb ) ABCDEDCFGH $.
$}
${
  3imtr4.1 $e |- ( ph -> ps ) $.
  3imtr4.2 $e |- ( ch <-> ph ) $.
  3imtr4.3 $e |- ( th <-> ps ) $.
  3imtr4i $p |- ( ch -> th ) $= ( sylbi sylibr ) CBDCABFEHGI $.
$}
${
  3imtr3g.1 $e |- ( ph -> ( ps -> ch ) ) $.
  3imtr3g.2 $e |- ( ps <-> th ) $.
  3imtr3g.3 $e |- ( ch <-> ta ) $.
  3imtr3g $p |- ( ph -> ( th -> ta ) ) $= ( syl5bir syl6ib ) ADCEDBACGFIHJ $.
$}
${
  3bitri.1 $e |- ( ph <-> ps ) $.
  3bitri.2 $e |- ( ps <-> ch ) $.
  3bitri.3 $e |- ( ch <-> th ) $.
  3bitri $p |- ( ph <-> th ) $= ( bitri ) ABDEBCDFGHH $.
$}
${
  3bitr3i.1 $e |- ( ph <-> ps ) $.
  3bitr3i.2 $e |- ( ph <-> ch ) $.
  3bitr3i.3 $e |- ( ps <-> th ) $.
  3bitr3i $p |- ( ch <-> th ) $= ( bitr3i bitri ) CBDCABFEHGI $.
$}
${
  3bitr4i.1 $e |- ( ph <-> ps ) $.
  3bitr4i.2 $e |- ( ch <-> ph ) $.
  3bitr4i.3 $e |- ( th <-> ps ) $.
  3bitr4i $p |- ( ch <-> th ) $= ( bitr4i bitri ) CADFABDEGHI $.
$}
${
  3bitr4ri.3bitr4i.1 $e |- ( ph <-> ps ) $.
  3bitr4ri.3bitr4i.2 $e |- ( ch <-> ph ) $.
  3bitr4ri.3bitr4i.3 $e |- ( th <-> ps ) $.
  3bitr4ri $p |- ( th <-> ch ) $= ( bitr4i bitr2i ) CADFABDEGHI $.
$}
${
  3bitr3g.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  3bitr3g.2 $e |- ( ps <-> th ) $.
  3bitr3g.3 $e |- ( ch <-> ta ) $.
  3bitr3g $p |- ( ph -> ( th <-> ta ) ) $= ( syl5bbr syl6bb ) ADCEDBACGFIHJ $.
$}
${
  3bitr4g.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  3bitr4g.2 $e |- ( th <-> ps ) $.
  3bitr4g.3 $e |- ( ta <-> ch ) $.
  3bitr4g $p |- ( ph -> ( th <-> ta ) ) $= ( syl5bb syl6bbr ) ADCEDBACGFIHJ $.
$}
notnot $p |- ( ph <-> -. -. ph ) $= ( wn notnot1 notnot2 impbii ) AABBACADE $.
con34b $p |- ( ( ph -> ps ) <-> ( -. ps -> -. ph ) ) $= ( wi wn con3 con4 impbii ) ABCBDADCABEBAFG
    $.
${
  con4bid.1 $e |- ( ph -> ( -. ps <-> -. ch ) ) $.
  con4bid $p |- ( ph -> ( ps <-> ch ) ) $= ( wn biimprd con4d biimpd impcon4bid )
    ABCACBABEZCEZDFGAJKDHI $.
$}
${
  notbid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  notbid $p |- ( ph -> ( -. ps <-> -. ch ) ) $= ( wn notnot 3bitr3g con4bid ) ABEZCEZABCIEJEDBFCFGH
    $.
$}
notbi $p |- ( ( ph <-> ps ) <-> ( -. ph <-> -. ps ) ) $= ( wb wn id notbid con4bid impbii )
    ABCZADBDCZIABIEFJABJEGH $.
${
  notbii.1 $e |- ( ph <-> ps ) $.
  notbii $p |- ( -. ph <-> -. ps ) $= ( wb wn notbi mpbi ) ABDAEBEDCABFG $.
$}
${
  xchbinx.1 $e |- ( ph <-> -. ps ) $.
  xchbinx.2 $e |- ( ps <-> ch ) $.
  xchbinx $p |- ( ph <-> -. ch ) $= ( wn notbii bitri ) ABFCFDBCEGH $.
$}
${
  xchbinxr.1 $e |- ( ph <-> -. ps ) $.
  xchbinxr.2 $e |- ( ch <-> ps ) $.
  xchbinxr $p |- ( ph <-> -. ch ) $= ( bicomi xchbinx ) ABCDCBEFG $.
$}
${
  imbi2i.1 $e |- ( ph <-> ps ) $.
  imbi2i $p |- ( ( ch -> ph ) <-> ( ch -> ps ) ) $= ( wb a1i pm5.74i ) CABABECDFG $.
$}
${
  bibi2i.1 $e |- ( ph <-> ps ) $.
  bibi2i $p |- ( ( ch <-> ph ) <-> ( ch <-> ps ) ) $= ( wb id syl6bb syl6bbr impbii )
    CAEZCBEZJCABJFDGKCBAKFDHI $.
$}
${
  bibi1i.bibi2i.1 $e |- ( ph <-> ps ) $.
  bibi1i $p |- ( ( ph <-> ch ) <-> ( ps <-> ch ) ) $= ( wb bicom bibi2i 3bitri )
    ACECAECBEBCEACFABCDGCBFH $.
$}
${
  bibi12i.bibi2i.1 $e |- ( ph <-> ps ) $.
  bibi12i.2 $e |- ( ch <-> th ) $.
  bibi12i $p |- ( ( ph <-> ch ) <-> ( ps <-> th ) ) $= ( wb bibi2i bibi1i bitri )
    ACGADGBDGCDAFHABDEIJ $.
$}
${
  imbid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  imbi2d $p |- ( ph -> ( ( th -> ps ) <-> ( th -> ch ) ) ) $= ( wb a1d pm5.74d ) ADBCABCFDEGH $.
$}
${
  imbi1d.imbid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  imbi1d $p |- ( ph -> ( ( ps -> th ) <-> ( ch -> th ) ) ) $= ( wi biimprd imim1d biimpd impbid )
    ABDFCDFACBDABCEGHABCDABCEIHJ $.
$}
${
  bibi2d.imbid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bibi2d $p |- ( ph -> ( ( th <-> ps ) <-> ( th <-> ch ) ) ) $= ( wb wi pm5.74i bibi2i pm5.74
    3bitr4i pm5.74ri ) ADBFZDCFZADGZABGZFOACGZF AMGANGPQOABCEHIADBJADCJKL $.
$}
${
  bibi1d.imbid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bibi1d $p |- ( ph -> ( ( ps <-> th ) <-> ( ch <-> th ) ) ) $= ( wb bibi2d bicom 3bitr4g )
    ADBFDCFBDFCDFABCDEGBDHCDHI $.
$}
${
  imbi12d.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  imbi12d.2 $e |- ( ph -> ( th <-> ta ) ) $.
  imbi12d $p |- ( ph -> ( ( ps -> th ) <-> ( ch -> ta ) ) ) $= ( wi imbi1d imbi2d bitrd )
    ABDHCDHCEHABCDFIADECGJK $.
$}
${
  bibi12d.imbi12d.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bibi12d.imbi12d.2 $e |- ( ph -> ( th <-> ta ) ) $.
  bibi12d $p |- ( ph -> ( ( ps <-> th ) <-> ( ch <-> ta ) ) ) $= ( wb bibi1d bibi2d bitrd )
    ABDHCDHCEHABCDFIADECGJK $.
$}
imbi12 $p |- ( ( ph <-> ps ) -> ( ( ch <-> th ) -> ( ( ph -> ch ) <-> ( ps -> th ) ) ) ) $= ( wb
    wi wn simplim simprim imbi12d expi ) ABEZCDEZACFBDFELMGZFGABCDLNHLMIJK $.
imbi1 $p |- ( ( ph <-> ps ) -> ( ( ph -> ch ) <-> ( ps -> ch ) ) ) $= ( wb id imbi1d ) ABDZABCGEF
    $.
${
  imbi1i.1 $e |- ( ph <-> ps ) $.
  imbi1i $p |- ( ( ph -> ch ) <-> ( ps -> ch ) ) $= ( wb wi imbi1 ax-mp ) ABEACFBCFEDABCGH $.
$}
${
  imbi12i.1 $e |- ( ph <-> ps ) $.
  imbi12i.2 $e |- ( ch <-> th ) $.
  imbi12i $p |- ( ( ph -> ch ) <-> ( ps -> th ) ) $= ( wb wi imbi12 mp2 ) ABGCDGACHBDHGEFABCDIJ $.
$}
bibi1 $p |- ( ( ph <-> ps ) -> ( ( ph <-> ch ) <-> ( ps <-> ch ) ) ) $= ( wb id bibi1d )
    ABDZABCGEF $.
${
  con1bii.1 $e |- ( -. ph <-> ps ) $.
  con1bii $p |- ( -. ps <-> ph ) $= ( wn notnot xchbinx bicomi ) ABDAADBAECFG $.
$}
${
  con2bii.1 $e |- ( ph <-> -. ps ) $.
  con2bii $p |- ( ps <-> -. ph ) $= ( wn bicomi con1bii ) ADBBAABDCEFE $.
$}
con1b $p |- ( ( -. ph -> ps ) <-> ( -. ps -> ph ) ) $= ( wn wi con1 impbii ) ACBDBCADABEBAEF $.
biimt $p |- ( ph -> ( ps <-> ( ph -> ps ) ) ) $= ( wi ax-1 pm2.27 impbid2 ) ABABCBADABEF $.
${
  a1bi.1 $e |- ph $.
  a1bi $p |- ( ps <-> ( ph -> ps ) ) $= ( wi wb biimt ax-mp ) ABABDECABFG $.
$}
${
  2falsed.1 $e |- ( ph -> -. ps ) $.
  2falsed.2 $e |- ( ph -> -. ch ) $.
  2falsed $p |- ( ph -> ( ps <-> ch ) ) $= ( pm2.21d impbid ) ABCABCDFACBEFG $.
$}
${
  pm5.21ni.1 $e |- ( ph -> ps ) $.
  pm5.21ni.2 $e |- ( ch -> ps ) $.
  pm5.21ni $p |- ( -. ps -> ( ph <-> ch ) ) $= ( wn con3i 2falsed ) BFACABDGCBEGH $.
$}
${
  pm5.21nii.pm5.21ni.1 $e |- ( ph -> ps ) $.
  pm5.21nii.pm5.21ni.2 $e |- ( ch -> ps ) $.
  pm5.21nii.3 $e |- ( ps -> ( ph <-> ch ) ) $.
  pm5.21nii $p |- ( ph <-> ch ) $= ( wb pm5.21ni pm2.61i ) BACGFABCDEHI $.
$}
bi2.04 $p |- ( ( ph -> ( ps -> ch ) ) <-> ( ps -> ( ph -> ch ) ) ) $= ( wi pm2.04 impbii )
    ABCDDBACDDABCEBACEF $.
wo $a wff ( ph \/ ps ) $.
wa $a wff ( ph /\ ps ) $.
df-or $a |- ( ( ph \/ ps ) <-> ( -. ph -> ps ) ) $.
df-an $a |- ( ( ph /\ ps ) <-> -. ( ph -> -. ps ) ) $.
pm2.53 $p |- ( ( ph \/ ps ) -> ( -. ph -> ps ) ) $= ( wo wn wi df-or biimpi ) ABCADBEABFG $.
pm2.54 $p |- ( ( -. ph -> ps ) -> ( ph \/ ps ) ) $= ( wo wn wi df-or biimpri ) ABCADBEABFG $.
${
  orrd.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
  orrd $p |- ( ph -> ( ps \/ ch ) ) $= ( wn wi wo pm2.54 syl ) ABECFBCGDBCHI $.
$}
${
  jaoi.1 $e |- ( ph -> ps ) $.
  jaoi.2 $e |- ( ch -> ps ) $.
  jaoi $p |- ( ( ph \/ ch ) -> ps ) $= ( wo wn pm2.53 syl6 pm2.61d2 ) ACFZABKAGCBACHEIDJ $.
$}
${
  jaod.1 $e |- ( ph -> ( ps -> ch ) ) $.
  jaod.2 $e |- ( ph -> ( th -> ch ) ) $.
  jaod $p |- ( ph -> ( ( ps \/ th ) -> ch ) ) $= ( wo wi com12 jaoi ) BDGACBACHDABCEIADCFIJI $.
$}
olc $p |- ( ph -> ( ps \/ ph ) ) $= ( wn ax-1 orrd ) ABAABCDE $.
orc $p |- ( ph -> ( ph \/ ps ) ) $= ( pm2.24 orrd ) AABABCD $.
pm1.4 $p |- ( ( ph \/ ps ) -> ( ps \/ ph ) ) $= ( wo olc orc jaoi ) ABACBABDBAEF $.
orcom $p |- ( ( ph \/ ps ) <-> ( ps \/ ph ) ) $= ( wo pm1.4 impbii ) ABCBACABDBADE $.
${
  orcomd.1 $e |- ( ph -> ( ps \/ ch ) ) $.
  orcomd $p |- ( ph -> ( ch \/ ps ) ) $= ( wo orcom sylib ) ABCECBEDBCFG $.
$}
${
  orcd.1 $e |- ( ph -> ps ) $.
  orcd $p |- ( ph -> ( ps \/ ch ) ) $= ( wo orc syl ) ABBCEDBCFG $.
$}
${
  olcd.orcd.1 $e |- ( ph -> ps ) $.
  olcd $p |- ( ph -> ( ch \/ ps ) ) $= ( orcd orcomd ) ABCABCDEF $.
$}
imnan $p |- ( ( ph -> -. ps ) <-> -. ( ph /\ ps ) ) $= ( wa wn wi df-an con2bii ) ABCABDEABFG $.
${
  imp.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imp $p |- ( ( ph /\ ps ) -> ch ) $= ( wa wn wi df-an impi sylbi ) ABEABFGFCABHABCDIJ $.
$}
${
  impcom.imp.1 $e |- ( ph -> ( ps -> ch ) ) $.
  impcom $p |- ( ( ps /\ ph ) -> ch ) $= ( com12 imp ) BACABCDEF $.
$}
${
  imp3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  impd $p |- ( ph -> ( ( ps /\ ch ) -> th ) ) $= ( wa wi com3l imp com12 ) BCFADBCADGABCDEHIJ $.
$}
${
  imp31.imp3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  imp31 $p |- ( ( ( ph /\ ps ) /\ ch ) -> th ) $= ( wa wi imp ) ABFCDABCDGEHH $.
$}
${
  imp32.imp3.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
  imp32 $p |- ( ( ph /\ ( ps /\ ch ) ) -> th ) $= ( wa impd imp ) ABCFDABCDEGH $.
$}
${
  ex.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  ex $p |- ( ph -> ( ps -> ch ) ) $= ( wn wi wa df-an sylbir expi ) ABCABEFEABGCABHDIJ $.
$}
${
  expcom.ex.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  expcom $p |- ( ps -> ( ph -> ch ) ) $= ( ex com12 ) ABCABCDEF $.
$}
${
  expd.1 $e |- ( ph -> ( ( ps /\ ch ) -> th ) ) $.
  expd $p |- ( ph -> ( ps -> ( ch -> th ) ) ) $= ( wi wa com12 ex com3r ) BCADBCADFABCGDEHIJ $.
$}
pm3.2 $p |- ( ph -> ( ps -> ( ph /\ ps ) ) ) $= ( wa id ex ) ABABCZFDE $.
pm3.21 $p |- ( ph -> ( ps -> ( ps /\ ph ) ) ) $= ( wa pm3.2 com12 ) BABACBADE $.
pm3.22 $p |- ( ( ph /\ ps ) -> ( ps /\ ph ) ) $= ( wa pm3.21 imp ) ABBACABDE $.
ancom $p |- ( ( ph /\ ps ) <-> ( ps /\ ph ) ) $= ( wa pm3.22 impbii ) ABCBACABDBADE $.
${
  ancomd.1 $e |- ( ph -> ( ps /\ ch ) ) $.
  ancomd $p |- ( ph -> ( ch /\ ps ) ) $= ( wa ancom sylib ) ABCECBEDBCFG $.
$}
${
  ancoms.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  ancoms $p |- ( ( ps /\ ph ) -> ch ) $= ( expcom imp ) BACABCDEF $.
$}
${
  ancomsd.1 $e |- ( ph -> ( ( ps /\ ch ) -> th ) ) $.
  ancomsd $p |- ( ph -> ( ( ch /\ ps ) -> th ) ) $= ( wa ancom syl5bi ) CBFBCFADCBGEH $.
$}
simpl $p |- ( ( ph /\ ps ) -> ph ) $= ( ax-1 imp ) ABAABCD $.
${
  simpld.1 $e |- ( ph -> ( ps /\ ch ) ) $.
  simpld $p |- ( ph -> ps ) $= ( wa simpl syl ) ABCEBDBCFG $.
$}
${
  simplbi.1 $e |- ( ph <-> ( ps /\ ch ) ) $.
  simplbi $p |- ( ph -> ps ) $= ( wa biimpi simpld ) ABCABCEDFG $.
$}
simpr $p |- ( ( ph /\ ps ) -> ps ) $= ( idd imp ) ABBABCD $.
${
  simprd.1 $e |- ( ph -> ( ps /\ ch ) ) $.
  simprd $p |- ( ph -> ch ) $= ( ancomd simpld ) ACBABCDEF $.
$}
${
  simprbi.1 $e |- ( ph <-> ( ps /\ ch ) ) $.
  simprbi $p |- ( ph -> ch ) $= ( wa biimpi simprd ) ABCABCEDFG $.
$}
${
  adantr.1 $e |- ( ph -> ps ) $.
  adantr $p |- ( ( ph /\ ch ) -> ps ) $= ( a1d imp ) ACBABCDEF $.
$}
${
  adantl.1 $e |- ( ph -> ps ) $.
  adantl $p |- ( ( ch /\ ph ) -> ps ) $= ( adantr ancoms ) ACBABCDEF $.
$}
${
  adantrd.1 $e |- ( ph -> ( ps -> ch ) ) $.
  adantrd $p |- ( ph -> ( ( ps /\ th ) -> ch ) ) $= ( wa simpl syl5 ) BDFBACBDGEH $.
$}
${
  mpan9.1 $e |- ( ph -> ps ) $.
  mpan9.2 $e |- ( ch -> ( ps -> th ) ) $.
  mpan9 $p |- ( ( ph /\ ch ) -> th ) $= ( syl5 impcom ) CADABCDEFGH $.
$}
${
  syldan.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  syldan.2 $e |- ( ( ph /\ ch ) -> th ) $.
  syldan $p |- ( ( ph /\ ps ) -> th ) $= ( wa expcom adantrd mpcom ) CABGDECADBACDFHIJ $.
$}
${
  sylan.1 $e |- ( ph -> ps ) $.
  sylan.2 $e |- ( ( ps /\ ch ) -> th ) $.
  sylan $p |- ( ( ph /\ ch ) -> th ) $= ( expcom mpan9 ) ABCDEBCDFGH $.
$}
${
  sylan2.1 $e |- ( ph -> ch ) $.
  sylan2.2 $e |- ( ( ps /\ ch ) -> th ) $.
  sylan2 $p |- ( ( ps /\ ph ) -> th ) $= ( adantl syldan ) BACDACBEGFH $.
$}
${
  syl2an.1 $e |- ( ph -> ps ) $.
  syl2an.2 $e |- ( ta -> ch ) $.
  syl2an.3 $e |- ( ( ps /\ ch ) -> th ) $.
  syl2an $p |- ( ( ph /\ ta ) -> th ) $= ( sylan sylan2 ) EACDGABCDFHIJ $.
$}
${
  syland.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syland.2 $e |- ( ph -> ( ( ch /\ th ) -> ta ) ) $.
  syland $p |- ( ph -> ( ( ps /\ th ) -> ta ) ) $= ( wi expd syld impd ) ABDEABCDEHFACDEGIJK $.
$}
${
  sylan2d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  sylan2d.2 $e |- ( ph -> ( ( th /\ ch ) -> ta ) ) $.
  sylan2d $p |- ( ph -> ( ( th /\ ps ) -> ta ) ) $= ( ancomsd syland ) ABDEABCDEFADCEGHIH $.
$}
${
  syl2and.1 $e |- ( ph -> ( ps -> ch ) ) $.
  syl2and.2 $e |- ( ph -> ( th -> ta ) ) $.
  syl2and.3 $e |- ( ph -> ( ( ch /\ ta ) -> et ) ) $.
  syl2and $p |- ( ph -> ( ( ps /\ th ) -> et ) ) $= ( sylan2d syland ) ABCDFGADECFHIJK $.
$}
iba $p |- ( ph -> ( ps <-> ( ps /\ ph ) ) ) $= ( wa pm3.21 simpl impbid1 ) ABBACABDBAEF $.
ibar $p |- ( ph -> ( ps <-> ( ph /\ ps ) ) ) $= ( wa pm3.2 simpr impbid1 ) ABABCABDABEF $.
${
  biantru.1 $e |- ph $.
  biantru $p |- ( ps <-> ( ps /\ ph ) ) $= ( wa wb iba ax-mp ) ABBADECABFG $.
$}
${
  biantrur.1 $e |- ph $.
  biantrur $p |- ( ps <-> ( ph /\ ps ) ) $= ( wa wb ibar ax-mp ) ABABDECABFG $.
$}
${
  jaao.1 $e |- ( ph -> ( ps -> ch ) ) $.
  jaao.2 $e |- ( th -> ( ta -> ch ) ) $.
  jaao $p |- ( ( ph /\ th ) -> ( ( ps \/ ta ) -> ch ) ) $= ( wa wi adantr adantl jaod )
    ADHBCEABCIDFJDECIAGKL $.
$}
${
  orim12i.1 $e |- ( ph -> ps ) $.
  orim12i.2 $e |- ( ch -> th ) $.
  orim12i $p |- ( ( ph \/ ch ) -> ( ps \/ th ) ) $= ( wo orcd olcd jaoi ) ABDGCABDEHCDBFIJ $.
$}
${
  orim1i.1 $e |- ( ph -> ps ) $.
  orim2i $p |- ( ( ch \/ ph ) -> ( ch \/ ps ) ) $= ( id orim12i ) CCABCEDF $.
$}
${
  orbi2i.1 $e |- ( ph <-> ps ) $.
  orbi2i $p |- ( ( ch \/ ph ) <-> ( ch \/ ps ) ) $= ( wo biimpi orim2i biimpri impbii )
    CAECBEABCABDFGBACABDHGI $.
$}
${
  orbi1i.orbi2i.1 $e |- ( ph <-> ps ) $.
  orbi1i $p |- ( ( ph \/ ch ) <-> ( ps \/ ch ) ) $= ( wo orcom orbi2i 3bitri )
    ACECAECBEBCEACFABCDGCBFH $.
$}
${
  orbi12i.1 $e |- ( ph <-> ps ) $.
  orbi12i.2 $e |- ( ch <-> th ) $.
  orbi12i $p |- ( ( ph \/ ch ) <-> ( ps \/ th ) ) $= ( wo orbi2i orbi1i bitri ) ACGADGBDGCDAFHABDEIJ
    $.
$}
${
  jca.1 $e |- ( ph -> ps ) $.
  jca.2 $e |- ( ph -> ch ) $.
  jca $p |- ( ph -> ( ps /\ ch ) ) $= ( wa pm3.2 sylc ) ABCBCFDEBCGH $.
$}
${
  jcad.1 $e |- ( ph -> ( ps -> ch ) ) $.
  jcad.2 $e |- ( ph -> ( ps -> th ) ) $.
  jcad $p |- ( ph -> ( ps -> ( ch /\ th ) ) ) $= ( wa pm3.2 syl6c ) ABCDCDGEFCDHI $.
$}
${
  jctild.1 $e |- ( ph -> ( ps -> ch ) ) $.
  jctild.2 $e |- ( ph -> th ) $.
  jctild $p |- ( ph -> ( ps -> ( th /\ ch ) ) ) $= ( a1d jcad ) ABDCADBFGEH $.
$}
anclb $p |- ( ( ph -> ps ) <-> ( ph -> ( ph /\ ps ) ) ) $= ( wa ibar pm5.74i ) ABABCABDE $.
${
  ancrd.1 $e |- ( ph -> ( ps -> ch ) ) $.
  ancrd $p |- ( ph -> ( ps -> ( ch /\ ps ) ) ) $= ( idd jcad ) ABCBDABEF $.
$}
${
  anc2li.1 $e |- ( ph -> ( ps -> ch ) ) $.
  anc2li $p |- ( ph -> ( ps -> ( ph /\ ch ) ) ) $= ( id jctild ) ABCADAEF $.
$}
pm3.4 $p |- ( ( ph /\ ps ) -> ( ph -> ps ) ) $= ( wa simpr a1d ) ABCBAABDE $.
${
  anim12i.1 $e |- ( ph -> ps ) $.
  anim12i.2 $e |- ( ch -> th ) $.
  anim12i $p |- ( ( ph /\ ch ) -> ( ps /\ th ) ) $= ( wa id syl2an ) ABDBDGZCEFJHI $.
$}
${
  anim1i.1 $e |- ( ph -> ps ) $.
  anim2i $p |- ( ( ch /\ ph ) -> ( ch /\ ps ) ) $= ( id anim12i ) CCABCEDF $.
$}
${
  exp31.1 $e |- ( ( ( ph /\ ps ) /\ ch ) -> th ) $.
  exp31 $p |- ( ph -> ( ps -> ( ch -> th ) ) ) $= ( wi wa ex ) ABCDFABGCDEHH $.
$}
${
  exp32.1 $e |- ( ( ph /\ ( ps /\ ch ) ) -> th ) $.
  exp32 $p |- ( ph -> ( ps -> ( ch -> th ) ) ) $= ( wa ex expd ) ABCDABCFDEGH $.
$}
dfbi2 $p |- ( ( ph <-> ps ) <-> ( ( ph -> ps ) /\ ( ps -> ph ) ) ) $= ( wb wi wn wa dfbi1 df-an
    bitr4i ) ABCABDZBADZEDEJKFABGJKHI $.
pm4.71 $p |- ( ( ph -> ps ) <-> ( ph <-> ( ph /\ ps ) ) ) $= ( wa wi wb simpl biantru anclb dfbi2
    3bitr4i ) AABCZDZLKADZCABDAKEMLABFGABH AKIJ $.
${
  pm4.71i.1 $e |- ( ph -> ps ) $.
  pm4.71i $p |- ( ph <-> ( ph /\ ps ) ) $= ( wi wa wb pm4.71 mpbi ) ABDAABEFCABGH $.
$}
pm5.32 $p |- ( ( ph -> ( ps <-> ch ) ) <-> ( ( ph /\ ps ) <-> ( ph /\ ch ) ) ) $= ( wb wi wn wa
    notbi imbi2i pm5.74 3bitri df-an bibi12i bitr4i ) ABCDZEZABFZ
    EZFZACFZEZFZDZABGZACGZDPAQTDZERUADUCOUFABCHIAQTJRUAHKUDSUEUBABLACLMN $.
${
  pm5.32i.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  pm5.32i $p |- ( ( ph /\ ps ) <-> ( ph /\ ch ) ) $= ( wb wi wa pm5.32 mpbi ) ABCEFABGACGEDABCHI $.
$}
${
  pm5.32ri.pm5.32i.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  pm5.32ri $p |- ( ( ps /\ ph ) <-> ( ch /\ ph ) ) $= ( wa pm5.32i ancom 3bitr4i )
    ABEACEBAECAEABCDFBAGCAGH $.
$}
${
  pm5.32d.1 $e |- ( ph -> ( ps -> ( ch <-> th ) ) ) $.
  pm5.32d $p |- ( ph -> ( ( ps /\ ch ) <-> ( ps /\ th ) ) ) $= ( wb wi wa pm5.32 sylib )
    ABCDFGBCHBDHFEBCDIJ $.
$}
${
  pm5.32rd.pm5.32d.1 $e |- ( ph -> ( ps -> ( ch <-> th ) ) ) $.
  pm5.32rd $p |- ( ph -> ( ( ch /\ ps ) <-> ( th /\ ps ) ) ) $= ( wa pm5.32d ancom 3bitr4g )
    ABCFBDFCBFDBFABCDEGCBHDBHI $.
$}
pm4.24 $p |- ( ph <-> ( ph /\ ph ) ) $= ( id pm4.71i ) AAABC $.
anidm $p |- ( ( ph /\ ph ) <-> ph ) $= ( wa pm4.24 bicomi ) AAABACD $.
${
  anasss.1 $e |- ( ( ( ph /\ ps ) /\ ch ) -> th ) $.
  anasss $p |- ( ( ph /\ ( ps /\ ch ) ) -> th ) $= ( exp31 imp32 ) ABCDABCDEFG $.
$}
${
  anassrs.1 $e |- ( ( ph /\ ( ps /\ ch ) ) -> th ) $.
  anassrs $p |- ( ( ( ph /\ ps ) /\ ch ) -> th ) $= ( exp32 imp31 ) ABCDABCDEFG $.
$}
anass $p |- ( ( ( ph /\ ps ) /\ ch ) <-> ( ph /\ ( ps /\ ch ) ) ) $= ( wa id anassrs anasss impbii
    ) ABDCDZABCDDZABCJJEFABCIIEGH $.
${
  syl2anc.1 $e |- ( ph -> ps ) $.
  syl2anc.2 $e |- ( ph -> ch ) $.
  syl2anc.3 $e |- ( ( ps /\ ch ) -> th ) $.
  syl2anc $p |- ( ph -> th ) $= ( ex sylc ) ABCDEFBCDGHI $.
$}
${
  sylanbrc.1 $e |- ( ph -> ps ) $.
  sylanbrc.2 $e |- ( ph -> ch ) $.
  sylanbrc.3 $e |- ( th <-> ( ps /\ ch ) ) $.
  sylanbrc $p |- ( ph -> th ) $= ( wa jca sylibr ) ABCHDABCEFIGJ $.
$}
${
  imdistani.1 $e |- ( ph -> ( ps -> ch ) ) $.
  imdistani $p |- ( ( ph /\ ps ) -> ( ph /\ ch ) ) $= ( wa anc2li imp ) ABACEABCDFG $.
$}
${
  anbi.1 $e |- ( ph <-> ps ) $.
  anbi2i $p |- ( ( ch /\ ph ) <-> ( ch /\ ps ) ) $= ( wb a1i pm5.32i ) CABABECDFG $.
$}
${
  anbi1i.anbi.1 $e |- ( ph <-> ps ) $.
  anbi1i $p |- ( ( ph /\ ch ) <-> ( ps /\ ch ) ) $= ( wb a1i pm5.32ri ) CABABECDFG $.
$}
${
  sylan9bb.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  sylan9bb.2 $e |- ( th -> ( ch <-> ta ) ) $.
  sylan9bb $p |- ( ( ph /\ th ) -> ( ps <-> ta ) ) $= ( wa wb adantr adantl bitrd )
    ADHBCEABCIDFJDCEIAGKL $.
$}
${
  bid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  orbi2d $p |- ( ph -> ( ( th \/ ps ) <-> ( th \/ ch ) ) ) $= ( wn wi wo imbi2d df-or 3bitr4g )
    ADFZBGLCGDBHDCHABCLEIDBJDCJK $.
$}
${
  orbi1d.bid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  orbi1d $p |- ( ph -> ( ( ps \/ th ) <-> ( ch \/ th ) ) ) $= ( wo orbi2d orcom 3bitr4g )
    ADBFDCFBDFCDFABCDEGBDHCDHI $.
$}
${
  anbi2d.bid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  anbi2d $p |- ( ph -> ( ( th /\ ps ) <-> ( th /\ ch ) ) ) $= ( wb a1d pm5.32d ) ADBCABCFDEGH $.
$}
${
  anbi1d.bid.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  anbi1d $p |- ( ph -> ( ( ps /\ th ) <-> ( ch /\ th ) ) ) $= ( wb a1d pm5.32rd ) ADBCABCFDEGH $.
$}
anbi2 $p |- ( ( ph <-> ps ) -> ( ( ch /\ ph ) <-> ( ch /\ ps ) ) ) $= ( wb id anbi2d ) ABDZABCGEF
    $.
${
  bi12d.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  bi12d.2 $e |- ( ph -> ( th <-> ta ) ) $.
  orbi12d $p |- ( ph -> ( ( ps \/ th ) <-> ( ch \/ ta ) ) ) $= ( wo orbi1d orbi2d bitrd )
    ABDHCDHCEHABCDFIADECGJK $.
$}
${
  jaodan.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  jaodan.2 $e |- ( ( ph /\ th ) -> ch ) $.
  jaodan $p |- ( ( ph /\ ( ps \/ th ) ) -> ch ) $= ( wo ex jaod imp ) ABDGCABCDABCEHADCFHIJ $.
$}
abai $p |- ( ( ph /\ ps ) <-> ( ph /\ ( ph -> ps ) ) ) $= ( wi biimt pm5.32i ) ABABCABDE $.
an12 $p |- ( ( ph /\ ( ps /\ ch ) ) <-> ( ps /\ ( ph /\ ch ) ) ) $= ( wa ancom anbi1i anass
    3bitr3i ) ABDZCDBADZCDABCDDBACDDIJCABEFABCGBACGH $.
an4 $p |- ( ( ( ph /\ ps ) /\ ( ch /\ th ) ) <-> ( ( ph /\ ch ) /\ ( ps /\ th ) ) ) $= ( wa an12
    anbi2i anass 3bitr4i ) ABCDEZEZEACBDEZEZEABEJEACELEKMABCDFGABJHAC LHI $.
${
  an4s.1 $e |- ( ( ( ph /\ ps ) /\ ( ch /\ th ) ) -> ta ) $.
  an4s $p |- ( ( ( ph /\ ch ) /\ ( ps /\ th ) ) -> ta ) $= ( wa an4 sylbi ) ACGBDGGABGCDGGEACBDHFI
    $.
$}
pm3.48 $p |- ( ( ( ph -> ps ) /\ ( ch -> th ) ) -> ( ( ph \/ ch ) -> ( ps \/ th ) ) ) $= ( wi wo
    orc imim2i olc jaao ) ABEABDFZCDECBKABDGHDKCDBIHJ $.
${
  orim12d.1 $e |- ( ph -> ( ps -> ch ) ) $.
  orim12d.2 $e |- ( ph -> ( th -> ta ) ) $.
  orim12d $p |- ( ph -> ( ( ps \/ th ) -> ( ch \/ ta ) ) ) $= ( wi wo pm3.48 syl2anc )
    ABCHDEHBDICEIHFGBCDEJK $.
$}
andi $p |- ( ( ph /\ ( ps \/ ch ) ) <-> ( ( ph /\ ps ) \/ ( ph /\ ch ) ) ) $= ( wo wa orc olc
    jaodan anim2i jaoi impbii ) ABCDZEZABEZACEZDZABPCNOFONGHNMO BLABCFICLACBGIJK $.
${
  baib.1 $e |- ( ph <-> ( ps /\ ch ) ) $.
  rbaibr $p |- ( ch -> ( ps <-> ph ) ) $= ( wa iba syl6bbr ) CBBCEACBFDG $.
$}
${
  mpbiran.1 $e |- ps $.
  mpbiran.2 $e |- ( ph <-> ( ps /\ ch ) ) $.
  mpbiran $p |- ( ph <-> ch ) $= ( wa biantrur bitr4i ) ABCFCEBCDGH $.
$}
w3o $a wff ( ph \/ ps \/ ch ) $.
w3a $a wff ( ph /\ ps /\ ch ) $.
wal $a wff A. x ph $.
cv $a class x $.
wceq $a wff A = B $.
wtru $a wff T. $.
df-tru $a |- ( T. <-> ( A. x x = x -> A. x x = x ) ) $.
tru $p |- T. $= ( vx wtru cv wceq wal wi id df-tru mpbir ) BACZJDAEZKFKGAHI $.
${
  trud.1 $e |- ( T. -> ph ) $.
  trud $p |- ph $= ( wtru tru ax-mp ) CADBE $.
$}
wex $a wff E. x ph $.
df-ex $a |- ( E. x ph <-> -. A. x -. ph ) $.
alnex $p |- ( A. x -. ph <-> -. E. x ph ) $= ( wex wn wal df-ex con2bii ) ABCADBEABFG $.
eximal $p |- ( ( E. x ph -> ps ) <-> ( -. ps -> A. x -. ph ) ) $= ( wex wi wn wal df-ex imbi1i
    con1b bitri ) ACDZBEAFCGZFZBEBFMELNBACHIMBJK $.
wnf $a wff F/ x ph $.
df-nf $a |- ( F/ x ph <-> A. x ( ph -> A. x ph ) ) $.
${
  ax-gen.1 $e |- ph $.
  ax-gen $a |- A. x ph $.
$}
${
  mpg.1 $e |- ( A. x ph -> ps ) $.
  mpg.2 $e |- ph $.
  mpg $p |- ps $= ( wal ax-gen ax-mp ) ACFBACEGDH $.
$}
${
  mpgbi.1 $e |- ( A. x ph <-> ps ) $.
  mpgbi.2 $e |- ph $.
  mpgbi $p |- ps $= ( wal ax-gen mpbi ) ACFBACEGDH $.
$}
${
  mpgbir.1 $e |- ( ph <-> A. x ps ) $.
  mpgbir.2 $e |- ps $.
  mpgbir $p |- ph $= ( wal ax-gen mpbir ) ABCFBCEGDH $.
$}
${
  nfi.1 $e |- ( ph -> A. x ph ) $.
  nfi $p |- F/ x ph $= ( wnf wal wi df-nf mpgbir ) ABDAABEFBABGCH $.
$}
ax-4 $a |- ( A. x ( ph -> ps ) -> ( A. x ph -> A. x ps ) ) $.
alim $p |- ( A. x ( ph -> ps ) -> ( A. x ph -> A. x ps ) ) $= ( ax-4 ) ABCD $.
${
  alimi.1 $e |- ( ph -> ps ) $.
  alimi $p |- ( A. x ph -> A. x ps ) $= ( wi wal alim mpg ) ABEACFBCFECABCGDH $.
$}
al2im $p |- ( A. x ( ph -> ( ps -> ch ) ) -> ( A. x ph -> ( A. x ps -> A. x ch ) ) ) $= ( wi wal
    alim syl6 ) ABCEZEDFADFIDFBDFCDFEAIDGBCDGH $.
${
  al2imi.1 $e |- ( ph -> ( ps -> ch ) ) $.
  al2imi $p |- ( A. x ph -> ( A. x ps -> A. x ch ) ) $= ( wi wal al2im mpg )
    ABCFFADGBDGCDGFFDABCDHEI $.
$}
${
  alanimi.1 $e |- ( ( ph /\ ps ) -> ch ) $.
  alanimi $p |- ( ( A. x ph /\ A. x ps ) -> A. x ch ) $= ( wal ex al2imi imp ) ADFBDFCDFABCDABCEGHI
    $.
$}
${
  alimdh.1 $e |- ( ph -> A. x ph ) $.
  alimdh.2 $e |- ( ph -> ( ps -> ch ) ) $.
  alimdh $p |- ( ph -> ( A. x ps -> A. x ch ) ) $= ( wal wi al2imi syl ) AADGBDGCDGHEABCDFIJ $.
$}
albi $p |- ( A. x ( ph <-> ps ) -> ( A. x ph <-> A. x ps ) ) $= ( wb wal biimp al2imi biimpr
    impbid ) ABDZCEACEBCEJABCABFGJBACABHGI $.
${
  albii.1 $e |- ( ph <-> ps ) $.
  albii $p |- ( A. x ph <-> A. x ps ) $= ( wb wal albi mpg ) ABEACFBCFECABCGDH $.
$}
${
  alrimih.1 $e |- ( ph -> A. x ph ) $.
  alrimih.2 $e |- ( ph -> ps ) $.
  alrimih $p |- ( ph -> A. x ps ) $= ( wal alimi syl ) AACFBCFDABCEGH $.
$}
${
  hbxfrbi.1 $e |- ( ph <-> ps ) $.
  hbxfrbi.2 $e |- ( ps -> A. x ps ) $.
  hbxfrbi $p |- ( ph -> A. x ph ) $= ( wal albii 3imtr4i ) BBCFAACFEDABCDGH $.
$}
${
  nfbii.1 $e |- ( ph <-> ps ) $.
  nfbii $p |- ( F/ x ph <-> F/ x ps ) $= ( wal wi wnf albii imbi12i df-nf 3bitr4i )
    AACEZFZCEBBCEZFZCEACGBCGMOCABL NDABCDHIHACJBCJK $.
$}
${
  nfxfr.nfbii.1 $e |- ( ph <-> ps ) $.
  nfxfr.2 $e |- F/ x ps $.
  nfxfr $p |- F/ x ph $= ( wnf nfbii mpbir ) ACFBCFEABCDGH $.
$}
${
  nfxfrd.nfbii.1 $e |- ( ph <-> ps ) $.
  nfxfrd.2 $e |- ( ch -> F/ x ps ) $.
  nfxfrd $p |- ( ch -> F/ x ph ) $= ( wnf nfbii sylibr ) CBDGADGFABDEHI $.
$}
alex $p |- ( A. x ph <-> -. E. x -. ph ) $= ( wal wn wex notnot albii alnex bitri )
    ABCADZDZBCJBEDAKBAFGJBHI $.
exnal $p |- ( E. x -. ph <-> -. A. x ph ) $= ( wal wn wex alex con2bii ) ABCADBEABFG $.
${
  aleximi.1 $e |- ( ph -> ( ps -> ch ) ) $.
  aleximi $p |- ( A. x ph -> ( E. x ps -> E. x ch ) ) $= ( wal wex wn con3d al2imi alnex 3imtr3g
    con4d ) ADFZCDGZBDGZNCHZDFBHZDFOH PHAQRDABCEIJCDKBDKLM $.
$}
${
  alexbii.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  alexbii $p |- ( A. x ph -> ( E. x ps <-> E. x ch ) ) $= ( wal wex biimpd aleximi biimprd impbid )
    ADFBDGCDGABCDABCEHIACBDABCEJIK $.
$}
exim $p |- ( A. x ( ph -> ps ) -> ( E. x ph -> E. x ps ) ) $= ( wi id aleximi ) ABDZABCGEF $.
${
  eximi.1 $e |- ( ph -> ps ) $.
  eximi $p |- ( E. x ph -> E. x ps ) $= ( wi wex exim mpg ) ABEACFBCFECABCGDH $.
$}
${
  eximii.1 $e |- E. x ph $.
  eximii.2 $e |- ( ph -> ps ) $.
  eximii $p |- E. x ps $= ( wex eximi ax-mp ) ACFBCFDABCEGH $.
$}
ala1 $p |- ( A. x ph -> A. x ( ps -> ph ) ) $= ( wi ax-1 alimi ) ABADCABEF $.
exa1 $p |- ( E. x ph -> E. x ( ps -> ph ) ) $= ( wi ax-1 eximi ) ABADCABEF $.
19.38 $p |- ( ( E. x ph -> A. x ps ) -> A. x ( ph -> ps ) ) $= ( wex wal wi wn alnex pm2.21 alimi
    sylbir ala1 ja ) ACDZBCEABFZCEZNGAGZCEPA CHQOCABIJKBACLM $.
alinexa $p |- ( A. x ( ph -> -. ps ) <-> -. E. x ( ph /\ ps ) ) $= ( wn wi wal wa wex imnan albii
    alnex bitri ) ABDEZCFABGZDZCFNCHDMOCABIJNCKL $.
exbi $p |- ( A. x ( ph <-> ps ) -> ( E. x ph <-> E. x ps ) ) $= ( wb id alexbii ) ABDZABCGEF $.
${
  exbii.1 $e |- ( ph <-> ps ) $.
  exbii $p |- ( E. x ph <-> E. x ps ) $= ( wb wex exbi mpg ) ABEACFBCFECABCGDH $.
$}
exancom $p |- ( E. x ( ph /\ ps ) <-> E. x ( ps /\ ph ) ) $= ( wa ancom exbii ) ABDBADCABEF $.
${
  alrimdh.1 $e |- ( ph -> A. x ph ) $.
  alrimdh.2 $e |- ( ps -> A. x ps ) $.
  alrimdh.3 $e |- ( ph -> ( ps -> ch ) ) $.
  alrimdh $p |- ( ph -> ( ps -> A. x ch ) ) $= ( wal alimdh syl5 ) BBDHACDHFABCDEGIJ $.
$}
${
  eximdh.1 $e |- ( ph -> A. x ph ) $.
  eximdh.2 $e |- ( ph -> ( ps -> ch ) ) $.
  eximdh $p |- ( ph -> ( E. x ps -> E. x ch ) ) $= ( wal wex wi aleximi syl ) AADGBDHCDHIEABCDFJK $.
$}
${
  albidh.1 $e |- ( ph -> A. x ph ) $.
  albidh.2 $e |- ( ph -> ( ps <-> ch ) ) $.
  albidh $p |- ( ph -> ( A. x ps <-> A. x ch ) ) $= ( wb wal alrimih albi syl )
    ABCGZDHBDHCDHGALDEFIBCDJK $.
$}
${
  exbidh.1 $e |- ( ph -> A. x ph ) $.
  exbidh.2 $e |- ( ph -> ( ps <-> ch ) ) $.
  exbidh $p |- ( ph -> ( E. x ps <-> E. x ch ) ) $= ( wal wex wb alexbii syl ) AADGBDHCDHIEABCDFJK
    $.
$}
exsimpl $p |- ( E. x ( ph /\ ps ) -> E. x ph ) $= ( wa simpl eximi ) ABDACABEF $.
exsimpr $p |- ( E. x ( ph /\ ps ) -> E. x ps ) $= ( wa simpr eximi ) ABDBCABEF $.
19.40 $p |- ( E. x ( ph /\ ps ) -> ( E. x ph /\ E. x ps ) ) $= ( wa wex exsimpl exsimpr jca )
    ABDCEACEBCEABCFABCGH $.
19.26 $p |- ( A. x ( ph /\ ps ) <-> ( A. x ph /\ A. x ps ) ) $= ( wa wal simpl alimi simpr jca id
    alanimi impbii ) ABDZCEZACEZBCEZDNOPMACAB FGMBCABHGIABMCMJKL $.
19.35 $p |- ( E. x ( ph -> ps ) <-> ( A. x ph -> E. x ps ) ) $= ( wi wex wal pm2.27 aleximi com12
    wn exnal pm2.21 eximi sylbir exa1 impbii ja )
    ABDZCEZACFZBCEZDTSUAARBCABGHITUASTJAJZCESACKUBRCABLMNBACOQP $.
${
  19.35i.1 $e |- E. x ( ph -> ps ) $.
  19.35i $p |- ( A. x ph -> E. x ps ) $= ( wi wex wal 19.35 mpbi ) ABECFACGBCFEDABCHI $.
$}
19.43 $p |- ( E. x ( ph \/ ps ) <-> ( E. x ph \/ E. x ps ) ) $= ( wo wex wn wi wal df-or exbii
    19.35 alnex imbi1i 3bitri bitr4i ) ABDZCEZAC
    EZFZBCEZGZRTDQAFZBGZCEUBCHZTGUAPUCCABIJUBBCKUDSTACLMNRTIO $.
exintrbi $p |- ( A. x ( ph -> ps ) -> ( E. x ph <-> E. x ( ph /\ ps ) ) ) $= ( wi wa abai rbaibr
    alexbii ) ABDZAABEZCJAIABFGH $.
exintr $p |- ( A. x ( ph -> ps ) -> ( E. x ph -> E. x ( ph /\ ps ) ) ) $= ( wi wal wex wa exintrbi
    biimpd ) ABDCEACFABGCFABCHI $.
${
  $d x ph $.
  ax-5 $a |- ( ph -> A. x ph ) $.
$}
${
  $d x ps $.
  ax5d $p |- ( ph -> ( ps -> A. x ps ) ) $= ( wal wi ax-5 a1i ) BBCDEABCFG $.
$}
${
  $d x ph $.
  ax5e $p |- ( E. x ph -> ph ) $= ( wex wi wn wal ax-5 eximal mpbir ) ABCADAEZJBFDJBGAABHI $.
$}
${
  $d x ph $.
  nfv $p |- F/ x ph $= ( ax-5 nfi ) ABABCD $.
$}
${
  $d x ph $.
  alimdv.1 $e |- ( ph -> ( ps -> ch ) ) $.
  alimdv $p |- ( ph -> ( A. x ps -> A. x ch ) ) $= ( ax-5 alimdh ) ABCDADFEG $.
$}
${
  $d x ph $.
  eximdv.alimdv.1 $e |- ( ph -> ( ps -> ch ) ) $.
  eximdv $p |- ( ph -> ( E. x ps -> E. x ch ) ) $= ( ax-5 eximdh ) ABCDADFEG $.
$}
${
  $d x ph $.
  albidv.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  albidv $p |- ( ph -> ( A. x ps <-> A. x ch ) ) $= ( ax-5 albidh ) ABCDADFEG $.
$}
${
  $d x ph $.
  exbidv.albidv.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  exbidv $p |- ( ph -> ( E. x ps <-> E. x ch ) ) $= ( ax-5 exbidh ) ABCDADFEG $.
$}
${
  $d x ph $.
  alrimiv.1 $e |- ( ph -> ps ) $.
  alrimiv $p |- ( ph -> A. x ps ) $= ( ax-5 alrimih ) ABCACEDF $.
$}
${
  $d x ph $.
  $d x ps $.
  alrimdv.1 $e |- ( ph -> ( ps -> ch ) ) $.
  alrimdv $p |- ( ph -> ( ps -> A. x ch ) ) $= ( ax-5 alrimdh ) ABCDADFBDFEG $.
$}
${
  $d x ps $.
  exlimiv.1 $e |- ( ph -> ps ) $.
  exlimiv $p |- ( E. x ph -> ps ) $= ( wex eximi ax5e syl ) ACEBCEBABCDFBCGH $.
$}
${
  $d x ps $.
  exlimiiv.exlimiv.1 $e |- ( ph -> ps ) $.
  exlimiiv.2 $e |- E. x ph $.
  exlimiiv $p |- ps $= ( wex exlimiv ax-mp ) ACFBEABCDGH $.
$}
${
  $d x ch $.
  $d x ph $.
  exlimdv.1 $e |- ( ph -> ( ps -> ch ) ) $.
  exlimdv $p |- ( ph -> ( E. x ps -> ch ) ) $= ( wex eximdv ax5e syl6 ) ABDFCDFCABCDEGCDHI $.
$}
${
  $d x ph $.
  stdpc5v $p |- ( A. x ( ph -> ps ) -> ( ph -> A. x ps ) ) $= ( wal wi ax-5 alim syl5 )
    AACDABECDBCDACFABCGH $.
$}
${
  $d x ph $.
  19.21v $p |- ( A. x ( ph -> ps ) <-> ( ph -> A. x ps ) ) $= ( wi wal stdpc5v wex ax5e imim1i 19.38
    syl impbii ) ABDCEZABCEZDZABCFOACG ZNDMPANACHIABCJKL $.
$}
weq $p wff x = y $= ( cv wceq ) ACBCD $.
${
  speimfw.2 $e |- ( x = y -> ( ph -> ps ) ) $.
  speimfw $p |- ( -. A. x -. x = y -> ( A. x ph -> E. x ps ) ) $= ( weq wn wal wex df-ex biimpri
    com12 aleximi syl5com ) CDFZGCHGZOCIZACHBC IQPOCJKAOBCOABELMN $.
$}
${
  spimfw.1 $e |- ( -. ps -> A. x -. ps ) $.
  spimfw.2 $e |- ( x = y -> ( ph -> ps ) ) $.
  spimfw $p |- ( -. A. x -. x = y -> ( A. x ph -> ps ) ) $= ( weq wn wal wex speimfw df-ex con1i
    sylbi syl6 ) CDGHCIHACIBCJZBABCDFKPB HCIZHBBCLBQEMNO $.
$}
wsb $a wff [ y / x ] ph $.
df-sb $a |- ( [ y / x ] ph <-> ( ( x = y -> ph ) /\ E. x ( x = y /\ ph ) ) ) $.
sbequ2 $p |- ( x = y -> ( [ y / x ] ph -> ph ) ) $= ( wsb weq wi wa wex df-sb simplbi com12 )
    ABCDZBCEZALMAFMAGBHABCIJK $.
sb1 $p |- ( [ y / x ] ph -> E. x ( x = y /\ ph ) ) $= ( wsb weq wi wa wex df-sb simprbi )
    ABCDBCEZAFKAGBHABCIJ $.
ax-6 $a |- -. A. x -. x = y $.
${
  $d x y $.
  ax6v $p |- -. A. x -. x = y $= ( ax-6 ) ABC $.
$}
${
  $d x y $.
  ax6ev $p |- E. x x = y $= ( weq wex wn wal ax6v df-ex mpbir ) ABCZADJEAFEABGJAHI $.
$}
${
  $d x y $.
  exiftru.1 $e |- ph $.
  exiftru $p |- E. x ph $= ( vy weq ax6ev a1i eximii ) BDEZABBDFAICGH $.
$}
19.2 $p |- ( A. x ph -> E. x ph ) $= ( wi id exiftru 19.35i ) AABAACBADEF $.
${
  19.8w.1 $e |- ( ph -> A. x ph ) $.
  19.8w $p |- ( ph -> E. x ph ) $= ( wal wex 19.2 syl ) AABDABECABFG $.
$}
${
  $d x ph $.
  19.8v $p |- ( ph -> E. x ph ) $= ( ax-5 19.8w ) ABABCD $.
$}
${
  $d x ph $.
  19.9v $p |- ( E. x ph <-> ph ) $= ( wex ax5e 19.8v impbii ) ABCAABDABEF $.
$}
${
  $d x ps $.
  19.23v $p |- ( A. x ( ph -> ps ) <-> ( E. x ph -> ps ) ) $= ( wi wal wex exim 19.9v syl6ib ax-5
    imim2i 19.38 syl impbii ) ABDCEZACFZB DZOPBCFBABCGBCHIQPBCEZDOBRPBCJKABCLMN $.
$}
${
  $d x ps $.
  19.36v $p |- ( E. x ( ph -> ps ) <-> ( A. x ph -> ps ) ) $= ( wi wex wal 19.35 19.9v imbi2i bitri
    ) ABDCEACFZBCEZDKBDABCGLBKBCHIJ $.
$}
${
  $d x y $.
  spimw.1 $e |- ( -. ps -> A. x -. ps ) $.
  spimw.2 $e |- ( x = y -> ( ph -> ps ) ) $.
  spimw $p |- ( A. x ph -> ps ) $= ( weq wn wal wi ax6v spimfw ax-mp ) CDGHCIHACIBJCDKABCDEFLM $.
$}
${
  $d x y $.
  $d x ps $.
  spimvw.1 $e |- ( x = y -> ( ph -> ps ) ) $.
  spimvw $p |- ( A. x ph -> ps ) $= ( wn ax-5 spimw ) ABCDBFCGEH $.
$}
${
  $d x y $.
  $d x ps $.
  equsalvw.1 $e |- ( x = y -> ( ph <-> ps ) ) $.
  equsalvw $p |- ( A. x ( x = y -> ph ) <-> ps ) $= ( weq wi wal wex 19.23v pm5.74i albii ax6ev a1bi
    3bitr4i ) CDFZBGZCHPCIZB GPAGZCHBPBCJSQCPABEKLRBCDMNO $.
$}
${
  $d x y $.
  cbvaliw.1 $e |- ( A. x ph -> A. y A. x ph ) $.
  cbvaliw.2 $e |- ( -. ps -> A. x -. ps ) $.
  cbvaliw.3 $e |- ( x = y -> ( ph -> ps ) ) $.
  cbvaliw $p |- ( A. x ph -> A. y ps ) $= ( wal spimw alrimih ) ACHBDEABCDFGIJ $.
$}
${
  $d x y $.
  $d x ps $.
  $d y ph $.
  cbvalivw.1 $e |- ( x = y -> ( ph -> ps ) ) $.
  cbvalivw $p |- ( A. x ph -> A. y ps ) $= ( wal spimvw alrimiv ) ACFBDABCDEGH $.
$}
ax-7 $a |- ( x = y -> ( x = z -> y = z ) ) $.
${
  $d x y $.
  ax7v $p |- ( x = y -> ( x = z -> y = z ) ) $= ( ax-7 ) ABCD $.
$}
${
  $d x y $.
  $d x z $.
  ax7v1 $p |- ( x = y -> ( x = z -> y = z ) ) $= ( ax7v ) ABCD $.
$}
${
  $d x y $.
  $d y z $.
  ax7v2 $p |- ( x = y -> ( x = z -> y = z ) ) $= ( ax7v ) ABCD $.
$}
${
  $d x y $.
  equid $p |- x = x $= ( vy weq ax7v1 pm2.43i ax6ev exlimiiv ) BACZAACZBHIBAADEBAFG $.
$}
${
  $d x y $.
  equcomiv $p |- ( x = y -> y = x ) $= ( weq equid ax7v2 mpi ) ABCAACBACADABAEF $.
$}
${
  $d x y $.
  ax6evr $p |- E. x y = x $= ( weq ax6ev equcomiv eximii ) ABCBACAABDABEF $.
$}
${
  $d t x $.
  $d t y $.
  $d t z $.
  ax7 $p |- ( x = y -> ( x = z -> y = z ) ) $= ( vt weq wi ax7v2 wa ax7v1 imp a1i syl2and expd
    ax6evr exlimiiv ) ADEZABE ZACEZBCEZFFDPQRSPQDBEZRDCEZSADBGADCGTUAHSFPTUASDBCIJKLMDANO $.
$}
equcomi $p |- ( x = y -> y = x ) $= ( weq equid ax7 mpi ) ABCAACBACADABAEF $.
equcom $p |- ( x = y <-> y = x ) $= ( weq equcomi impbii ) ABCBACABDBADE $.
${
  equcoms.1 $e |- ( x = y -> ph ) $.
  equcoms $p |- ( y = x -> ph ) $= ( weq equcomi syl ) CBEBCEACBFDG $.
$}
equtr $p |- ( x = y -> ( y = z -> x = z ) ) $= ( weq wi ax7 equcoms ) BCDACDEBABACFG $.
equtrr $p |- ( x = y -> ( z = x -> z = y ) ) $= ( weq equtr com12 ) CADABDCBDCABEF $.
equequ1 $p |- ( x = y -> ( x = z <-> y = z ) ) $= ( weq ax7 equtr impbid ) ABDACDBCDABCEABCFG $.
equequ2 $p |- ( x = y -> ( z = x <-> z = y ) ) $= ( weq equequ1 equcom 3bitr3g )
    ABDACDBCDCADCBDABCEACFBCFG $.
equtr2 $p |- ( ( x = z /\ y = z ) -> x = y ) $= ( weq wi equtrr equcoms impcom )
    BCDACDZABDZIJECBCBAFGH $.
${
  $d x z $.
  $d y z $.
  equviniv $p |- ( x = y -> E. z ( x = z /\ y = z ) ) $= ( weq wex wa ax6ev equcomi equtr ancrd syl5
    eximdv mpi ) ABDZCBDZCEACDZBC DZFZCECBGNORCOQNRCBHNQPABCIJKLM $.
$}
ax13b $p |- ( ( -. x = y -> ( y = z -> ph ) ) <-> ( -. x = y -> ( -. x = z -> ( y = z -> ph ) ) )
    ) $= ( weq wn wi ax-1 equtrr equcoms con3rr3 imim1d pm2.43 syl6 impbid2 pm5.74i )
    BCEZFZCDEZAGZBDEZFZTGZRTUCTUBHRUCSTGTRSUBTSUAQUAQGDCDCBIJKLSAMNOP $.
${
  $d x y $.
  cbvalw.1 $e |- ( A. x ph -> A. y A. x ph ) $.
  cbvalw.2 $e |- ( -. ps -> A. x -. ps ) $.
  cbvalw.3 $e |- ( A. y ps -> A. x A. y ps ) $.
  cbvalw.4 $e |- ( -. ph -> A. y -. ph ) $.
  cbvalw.5 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbvalw $p |- ( A. x ph <-> A. y ps ) $= ( wal weq biimpd cbvaliw wi biimprd equcoms impbii )
    ACJBDJABCDEFCDKZABIL MBADCGHBANCDRABIOPMQ $.
$}
${
  $d x y $.
  $d x ps $.
  $d y ph $.
  cbvalvw.1 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbvalvw $p |- ( A. x ph <-> A. y ps ) $= ( wal ax-5 wn cbvalw ) ABCDACFDGBHCGBDFCGAHDGEI $.
$}
${
  $d x v w $.
  $d y v w $.
  cbvaev $p |- ( A. x x = w -> A. y y = w ) $= ( vv weq wal ax7 cbvalivw syl )
    ACEZAFDCEZDFBCEZBFJKADADCGHKLDBDBCGHI $.
$}
wcel $a wff A e. B $.
wel $p wff x e. y $= ( cv wcel ) ACBCD $.
ax-10 $a |- ( -. A. x ph -> A. x -. A. x ph ) $.
hbn1 $p |- ( -. A. x ph -> A. x -. A. x ph ) $= ( ax-10 ) ABC $.
hbe1 $p |- ( E. x ph -> A. x E. x ph ) $= ( wex wn wal df-ex hbn1 hbxfrbi ) ABCADZBEDBABFIBGH $.
nfe1 $p |- F/ x E. x ph $= ( wex hbe1 nfi ) ABCBABDE $.
ax-11 $a |- ( A. x A. y ph -> A. y A. x ph ) $.
${
  hbal.1 $e |- ( ph -> A. x ph ) $.
  hbal $p |- ( A. y ph -> A. x A. y ph ) $= ( wal alimi ax-11 syl ) ACEZABEZCEIBEAJCDFACBGH $.
$}
${
  hbald.1 $e |- ( ph -> A. y ph ) $.
  hbald.2 $e |- ( ph -> ( ps -> A. x ps ) ) $.
  hbald $p |- ( ph -> ( A. y ps -> A. x A. y ps ) ) $= ( wal alimdh ax-11 syl6 )
    ABDGZBCGZDGKCGABLDEFHBDCIJ $.
$}
ax-12 $a |- ( x = y -> ( A. y ph -> A. x ( x = y -> ph ) ) ) $.
${
  $d x y z $.
  $d ph z $.
  ax12v $p |- ( x = y -> ( ph -> A. x ( x = y -> ph ) ) ) $= ( vz weq wi wal equequ2 biimprd ax-5
    ax-12 syl5 imim1d alimdv syl9r ax6ev syld exlimiiv )
    DCEZBCEZATAFZBGZFZFDSTBDEZUCSUDTDCBHIZUDAUDAFZBGZSUBAADGU DUGADJABDKLSUFUABSTUDAUEMNOQDCPR $.
$}
${
  $d x y $.
  $d y ph $.
  19.8a $p |- ( ph -> E. x ph ) $= ( vy weq wex wi wal ax12v ax6ev exim syl6mpi equcoms exlimiiv )
    CBDAABEZF ZCOBCBCDZAPAFBGPBENABCHBCIPABJKLCBIM $.
$}
sp $p |- ( A. x ph -> ph ) $= ( wal wn wex alex 19.8a con1i sylbi ) ABCADZBEZDAABFAKJBGHI $.
axc7 $p |- ( -. A. x -. A. x ph -> ph ) $= ( wal wn sp hbn1 nsyl4 ) ABCZAHDBCABEABFG $.
axc7e $p |- ( E. x A. x ph -> ph ) $= ( wal wex wn df-ex axc7 sylbi ) ABCZBDIEBCEAIBFABGH $.
${
  sps.1 $e |- ( ph -> ps ) $.
  sps $p |- ( A. x ph -> ps ) $= ( wal sp syl ) ACEABACFDG $.
$}
${
  spsd.1 $e |- ( ph -> ( ps -> ch ) ) $.
  spsd $p |- ( ph -> ( A. x ps -> ch ) ) $= ( wal sp syl5 ) BDFBACBDGEH $.
$}
nfr $p |- ( F/ x ph -> ( ph -> A. x ph ) ) $= ( wnf wal wi df-nf sp sylbi ) ABCAABDEZBDIABFIBGH $.
${
  nfri.1 $e |- F/ x ph $.
  nfri $p |- ( ph -> A. x ph ) $= ( wnf wal wi nfr ax-mp ) ABDAABEFCABGH $.
$}
${
  nfrd.1 $e |- ( ph -> F/ x ps ) $.
  nfrd $p |- ( ph -> ( ps -> A. x ps ) ) $= ( wnf wal wi nfr syl ) ABCEBBCFGDBCHI $.
$}
${
  alimd.1 $e |- F/ x ph $.
  alimd.2 $e |- ( ph -> ( ps -> ch ) ) $.
  alimd $p |- ( ph -> ( A. x ps -> A. x ch ) ) $= ( nfri alimdh ) ABCDADEGFH $.
$}
${
  alrimi.1 $e |- F/ x ph $.
  alrimi.2 $e |- ( ph -> ps ) $.
  alrimi $p |- ( ph -> A. x ps ) $= ( nfri alrimih ) ABCACDFEG $.
$}
${
  nfd.1 $e |- F/ x ph $.
  nfd.2 $e |- ( ph -> ( ps -> A. x ps ) ) $.
  nfd $p |- ( ph -> F/ x ps ) $= ( wal wi wnf alrimi df-nf sylibr ) ABBCFGZCFBCHALCDEIBCJK $.
$}
${
  alrimdd.1 $e |- F/ x ph $.
  alrimdd.2 $e |- ( ph -> F/ x ps ) $.
  alrimdd.3 $e |- ( ph -> ( ps -> ch ) ) $.
  alrimdd $p |- ( ph -> ( ps -> A. x ch ) ) $= ( wal nfrd alimd syld ) ABBDHCDHABDFIABCDEGJK $.
$}
${
  alrimd.1 $e |- F/ x ph $.
  alrimd.2 $e |- F/ x ps $.
  alrimd.3 $e |- ( ph -> ( ps -> ch ) ) $.
  alrimd $p |- ( ph -> ( ps -> A. x ch ) ) $= ( wnf a1i alrimdd ) ABCDEBDHAFIGJ $.
$}
${
  eximd.1 $e |- F/ x ph $.
  eximd.2 $e |- ( ph -> ( ps -> ch ) ) $.
  eximd $p |- ( ph -> ( E. x ps -> E. x ch ) ) $= ( nfri eximdh ) ABCDADEGFH $.
$}
${
  albid.1 $e |- F/ x ph $.
  albid.2 $e |- ( ph -> ( ps <-> ch ) ) $.
  albid $p |- ( ph -> ( A. x ps <-> A. x ch ) ) $= ( nfri albidh ) ABCDADEGFH $.
$}
${
  exbid.1 $e |- F/ x ph $.
  exbid.2 $e |- ( ph -> ( ps <-> ch ) ) $.
  exbid $p |- ( ph -> ( E. x ps <-> E. x ch ) ) $= ( nfri exbidh ) ABCDADEGFH $.
$}
${
  19.3.1 $e |- F/ x ph $.
  19.3 $p |- ( A. x ph <-> ph ) $= ( wal sp nfri impbii ) ABDAABEABCFG $.
$}
19.9ht $p |- ( A. x ( ph -> A. x ph ) -> ( E. x ph -> ph ) ) $= ( wal wi wex exim axc7e syl6 )
    AABCZDBCABEIBEAAIBFABGH $.
${
  19.9d.1 $e |- ( ps -> F/ x ph ) $.
  19.9d $p |- ( ps -> ( E. x ph -> ph ) ) $= ( wal wi wex wnf df-nf sylib 19.9ht syl )
    BAACEFCEZACGAFBACHMDACIJACKL $.
$}
19.9t $p |- ( F/ x ph -> ( E. x ph <-> ph ) ) $= ( wnf wex id 19.9d 19.8a impbid1 )
    ABCZABDAAIBIEFABGH $.
${
  19.9.1 $e |- F/ x ph $.
  19.9 $p |- ( E. x ph <-> ph ) $= ( wnf wex wb 19.9t ax-mp ) ABDABEAFCABGH $.
$}
hbnt $p |- ( A. x ( ph -> A. x ph ) -> ( -. ph -> A. x -. ph ) ) $= ( wal wi wn wex df-ex 19.9ht
    syl5bir con1d ) AABCDBCZAEBCZALEABFKAABGABHIJ $.
${
  hbn.1 $e |- ( ph -> A. x ph ) $.
  hbn $p |- ( -. ph -> A. x -. ph ) $= ( wal wi wn hbnt mpg ) AABDEAFZIBDEBABGCH $.
$}
hba1 $p |- ( A. x ph -> A. x A. x ph ) $= ( wal wn wex alex hbe1 hbn hbxfrbi )
    ABCADZBEZDBABFKBJBGHI $.
nfa1 $p |- F/ x A. x ph $= ( wal hba1 nfi ) ABCBABDE $.
${
  axc4i.1 $e |- ( A. x ph -> ps ) $.
  axc4i $p |- ( A. x ph -> A. x ps ) $= ( wal nfa1 alrimi ) ACEBCACFDG $.
$}
nfnf1 $p |- F/ x F/ x ph $= ( wnf wal wi df-nf nfa1 nfxfr ) ABCAABDEZBDBABFIBGH $.
nfnt $p |- ( F/ x ph -> F/ x -. ph ) $= ( wnf wn nfnf1 wal wi df-nf hbnt sylbi nfd )
    ABCZADZBABELAABFGBFMMBFGABHABI JK $.
${
  nfn.1 $e |- F/ x ph $.
  nfn $p |- F/ x -. ph $= ( wnf wn nfnt ax-mp ) ABDAEBDCABFG $.
$}
${
  nfnd.1 $e |- ( ph -> F/ x ps ) $.
  nfnd $p |- ( ph -> F/ x -. ps ) $= ( wnf wn nfnt syl ) ABCEBFCEDBCGH $.
$}
nfna1 $p |- F/ x -. A. x ph $= ( wal nfa1 nfn ) ABCBABDE $.
19.21t $p |- ( F/ x ph -> ( A. x ( ph -> ps ) <-> ( ph -> A. x ps ) ) ) $= ( wnf wi wal nfr alim
    syl9 wex 19.9t imbi1d 19.38 syl6bir impbid ) ACDZABEC
    FZABCFZEZPAACFQRACGABCHIPSACJZREQPTARACKLABCMNO $.
${
  19.21.1 $e |- F/ x ph $.
  19.21 $p |- ( A. x ( ph -> ps ) <-> ( ph -> A. x ps ) ) $= ( wnf wi wal wb 19.21t ax-mp )
    ACEABFCGABCGFHDABCIJ $.
$}
${
  19.21h.1 $e |- ( ph -> A. x ph ) $.
  19.21h $p |- ( A. x ( ph -> ps ) <-> ( ph -> A. x ps ) ) $= ( nfi 19.21 ) ABCACDEF $.
$}
19.23t $p |- ( F/ x ps -> ( A. x ( ph -> ps ) <-> ( E. x ph -> ps ) ) ) $= ( wnf wn wi wal wex wb
    nfnt 19.21t syl con34b albii eximal 3bitr4g ) BCDZBE
    ZAEZFZCGZRSCGFZABFZCGACHBFQRCDUAUBIBCJRSCKLUCTCABMNABCOP $.
${
  19.23.1 $e |- F/ x ps $.
  19.23 $p |- ( A. x ( ph -> ps ) <-> ( E. x ph -> ps ) ) $= ( wnf wi wal wex wb 19.23t ax-mp )
    BCEABFCGACHBFIDABCJK $.
$}
${
  exlimi.1 $e |- F/ x ps $.
  exlimi.2 $e |- ( ph -> ps ) $.
  exlimi $p |- ( E. x ph -> ps ) $= ( wi wex 19.23 mpgbi ) ABFACGBFCABCDHEI $.
$}
${
  exlimd.1 $e |- F/ x ph $.
  exlimd.2 $e |- F/ x ch $.
  exlimd.3 $e |- ( ph -> ( ps -> ch ) ) $.
  exlimd $p |- ( ph -> ( E. x ps -> ch ) ) $= ( wex eximd 19.9 syl6ib ) ABDHCDHCABCDEGICDFJK $.
$}
${
  nfimd.1 $e |- ( ph -> F/ x ps ) $.
  nfimd.2 $e |- ( ph -> F/ x ch ) $.
  nfimd $p |- ( ph -> F/ x ( ps -> ch ) ) $= ( wnf wal nfnf1 nfr imim2d 19.21t biimprd syl9r alrimd
    df-nf syl6ibr sylc wi ) ABDGZCDGZBCSZDGZEFTUAUBUBDHZSZDHUCTUAUEDBDICDIUAUBBCDHZSZTUDUACUFBCD
    JKTUDUGBCDLMNOUBDPQR $.
$}
${
  hbim1.1 $e |- ( ph -> A. x ph ) $.
  hbim1.2 $e |- ( ph -> ( ps -> A. x ps ) ) $.
  hbim1 $p |- ( ( ph -> ps ) -> A. x ( ph -> ps ) ) $= ( wi wal a2i 19.21h sylibr )
    ABFZABCGZFKCGABLEHABCDIJ $.
$}
${
  nfim1.1 $e |- F/ x ph $.
  nfim1.2 $e |- ( ph -> F/ x ps ) $.
  nfim1 $p |- F/ x ( ph -> ps ) $= ( wi nfri nfrd hbim1 nfi ) ABFCABCACDGABCEHIJ $.
$}
${
  nfim.1 $e |- F/ x ph $.
  nfim.2 $e |- F/ x ps $.
  nfim $p |- F/ x ( ph -> ps ) $= ( wnf a1i nfim1 ) ABCDBCFAEGH $.
$}
${
  19.28.1 $e |- F/ x ph $.
  19.28 $p |- ( A. x ( ph /\ ps ) <-> ( ph /\ A. x ps ) ) $= ( wa wal 19.26 19.3 anbi1i bitri )
    ABECFACFZBCFZEALEABCGKALACDHIJ $.
$}
${
  nfand.1 $e |- ( ph -> F/ x ps ) $.
  nfand.2 $e |- ( ph -> F/ x ch ) $.
  nfand $p |- ( ph -> F/ x ( ps /\ ch ) ) $= ( wa wn wi df-an nfnd nfimd nfxfrd )
    BCGBCHZIZHADBCJAODABNDEACDFKLKM $.
$}
${
  nfan1.1 $e |- F/ x ph $.
  nfan1.2 $e |- ( ph -> F/ x ps ) $.
  nfan1 $p |- F/ x ( ph /\ ps ) $= ( wa wal nfrd imdistani 19.28 sylibr nfi )
    ABFZCMABCGZFMCGABNABCEHIABCDJK L $.
$}
${
  nfan.1 $e |- F/ x ph $.
  nfan.2 $e |- F/ x ps $.
  nfan $p |- F/ x ( ph /\ ps ) $= ( wnf a1i nfan1 ) ABCDBCFAEGH $.
$}
${
  nfbid.1 $e |- ( ph -> F/ x ps ) $.
  nfbid.2 $e |- ( ph -> F/ x ch ) $.
  nfbid $p |- ( ph -> F/ x ( ps <-> ch ) ) $= ( wb wi wa dfbi2 nfimd nfand nfxfrd )
    BCGBCHZCBHZIADBCJANODABCDEFKACBDFEK LM $.
$}
${
  nf.1 $e |- F/ x ph $.
  nf.2 $e |- F/ x ps $.
  nfbi $p |- F/ x ( ph <-> ps ) $= ( wb wnf wtru a1i nfbid trud ) ABFCGHABCACGHDIBCGHEIJK $.
$}
axc112 $p |- ( A. y y = x -> ( A. x ph -> A. y ph ) ) $= ( weq wal wi ax-12 sps pm2.27 al2imi syld
    ) CBDZCEABEZLAFZCEZACELMOFCACBGHL NACLAIJK $.
${
  $d x z $.
  $d y z $.
  axc11nlem.1 $e |- ( -. A. y y = x -> ( x = z -> A. y x = z ) ) $.
  axc11nlem $p |- ( A. x x = z -> A. y y = x ) $= ( weq wal cbvaev equequ2 biimprd al2imi syl5com
    spsd com12 con1d pm2.61d wn )
    ACEZAFZQBFZBAEZBFZRBCEZBFSUAABCGQUBTBQTUBACBHIJKRUASUAPZRSUCQSADLMNO $.
$}
${
  $d v w z $.
  $d v x y $.
  aevlem1 $p |- ( A. z z = w -> A. y y = x ) $= ( vv weq wal cbvaev wn ax5d axc11nlem 4syl )
    CDFCGEDFZEGCEFCGZAEFZAGBAFBG ZCEDHECDNIMCJKCAEHABEPIOBJKL $.
$}
${
  $d w x y $.
  $d w z $.
  $d w ph $.
  axc16g $p |- ( A. x x = y -> ( ph -> A. z ph ) ) $= ( vw weq wal aevlem1 ax-5 axc112 syl2im )
    BCFBGDEFDGAAEGADGEDBCHAEIAEDJK $.
$}
${
  $d x y $.
  axc16 $p |- ( A. x x = y -> ( ph -> A. x ph ) ) $= ( axc16g ) ABCBD $.
$}
${
  nfal.1 $e |- F/ x ph $.
  nfal $p |- F/ x A. y ph $= ( wal nfri hbal nfi ) ACEBABCABDFGH $.
$}
${
  nfald.1 $e |- F/ y ph $.
  nfald.2 $e |- ( ph -> F/ x ps ) $.
  nfald $p |- ( ph -> F/ x A. y ps ) $= ( wnf wal alrimi nfnf1 nfal hba1 sp nfrd hbald nfd syl )
    ABCGZDHZBDHZCGAR DEFISTCRCDBCJKSBCDRDLSBCRDMNOPQ $.
$}
${
  nfexd.nfald.1 $e |- F/ y ph $.
  nfexd.nfald.2 $e |- ( ph -> F/ x ps ) $.
  nfexd $p |- ( ph -> F/ x E. y ps ) $= ( wex wn wal df-ex nfnd nfald nfxfrd )
    BDGBHZDIZHACBDJAOCANCDEABCFKLKM $.
$}
nf2 $p |- ( F/ x ph <-> ( E. x ph -> A. x ph ) ) $= ( wnf wal wi wex df-nf nfa1 19.23 bitri )
    ABCAABDZEBDABFKEABGAKBABHIJ $.
${
  19.36.1 $e |- F/ x ps $.
  19.36 $p |- ( E. x ( ph -> ps ) <-> ( A. x ph -> ps ) ) $= ( wi wex wal 19.35 19.9 imbi2i bitri )
    ABECFACGZBCFZELBEABCHMBLBCDIJK $.
$}
${
  19.36i.19.36.1 $e |- F/ x ps $.
  19.36i.2 $e |- E. x ( ph -> ps ) $.
  19.36i $p |- ( A. x ph -> ps ) $= ( wi wex wal 19.36 mpbi ) ABFCGACHBFEABCDIJ $.
$}
${
  19.41.1 $e |- F/ x ps $.
  19.41 $p |- ( E. x ( ph /\ ps ) <-> ( E. x ph /\ ps ) ) $= ( wa wex 19.40 19.9 anbi2i sylib pm3.21
    eximd impcom impbii ) ABEZCFZACFZ BEZPQBCFZERABCGSBQBCDHIJBQPBAOCDBAKLMN $.
$}
${
  $d x y $.
  spimv1.nf $e |- F/ x ps $.
  spimv1.1 $e |- ( x = y -> ( ph -> ps ) ) $.
  spimv1 $p |- ( A. x ph -> ps ) $= ( weq wi ax6ev eximii 19.36i ) ABCECDGABHCCDIFJK $.
$}
${
  $d x y $.
  cbv3v.nf1 $e |- F/ y ph $.
  cbv3v.nf2 $e |- F/ x ps $.
  cbv3v.1 $e |- ( x = y -> ( ph -> ps ) ) $.
  cbv3v $p |- ( A. x ph -> A. y ps ) $= ( wal nfal spimv1 alrimi ) ACHBDADCEIABCDFGJK $.
$}
${
  $d x y $.
  cbvalv1.nf1 $e |- F/ y ph $.
  cbvalv1.nf2 $e |- F/ x ps $.
  cbvalv1.1 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbvalv1 $p |- ( A. x ph <-> A. y ps ) $= ( wal weq biimpd cbv3v wi biimprd equcoms impbii )
    ACHBDHABCDEFCDIZABGJKB ADCFEBALCDPABGMNKO $.
$}
${
  $d x y $.
  equsexv.nf $e |- F/ x ps $.
  equsexv.1 $e |- ( x = y -> ( ph <-> ps ) ) $.
  equsexv $p |- ( E. x ( x = y /\ ph ) <-> ps ) $= ( weq wa wex pm5.32i exbii ax6ev 19.41 mpbiran
    bitri ) CDGZAHZCIPBHZCIZBQ RCPABFJKSPCIBCDLPBCEMNO $.
$}
${
  $d x y $.
  sb56 $p |- ( E. x ( x = y /\ ph ) <-> A. x ( x = y -> ph ) ) $= ( weq wi wal nfa1 ax12v sp com12
    impbid equsexv ) ABCDZAEZBFZBCNBGMAOABCH OMANBIJKL $.
$}
sbequ1 $p |- ( x = y -> ( ph -> [ y / x ] ph ) ) $= ( weq wsb wa wi wex pm3.4 19.8a df-sb sylanbrc
    ex ) BCDZAABCEZNAFZNAGPBHONA IPBJABCKLM $.
sbequ12 $p |- ( x = y -> ( ph <-> [ y / x ] ph ) ) $= ( weq wsb sbequ1 sbequ2 impbid )
    BCDAABCEABCFABCGH $.
sbequ12r $p |- ( x = y -> ( [ x / y ] ph <-> ph ) ) $= ( wsb wb weq sbequ12 bicomd equcoms )
    ACBDZAECBCBFAJACBGHI $.
sbid $p |- ( [ x / x ] ph <-> ph ) $= ( weq wsb wb equid sbequ12r ax-mp ) BBCABBDAEBFABBGH $.
ax-13 $a |- ( -. x = y -> ( y = z -> A. x y = z ) ) $.
${
  $d x z $.
  $d y z $.
  ax13v $p |- ( -. x = y -> ( y = z -> A. x y = z ) ) $= ( ax-13 ) ABCD $.
$}
${
  $d x z w $.
  $d y w $.
  axc9lem1 $p |- ( -. x = y -> ( z = y -> A. x z = y ) ) $= ( vw weq wa wex wn wal equviniv equequ2
    biimprcd alimdv syl9 impd exlimdv ax13v syl5 )
    CBEZCDEZBDEZFZDGABEHZSAIZCBDJUCUBUDDUCTUAUDUCUAUAAITUDABDQTU ASAUASTBDCKLMNOPR $.
$}
${
  $d y w $.
  $d x w $.
  ax6e $p |- E. x x = y $= ( vw weq wex 19.8a wn wi wal axc9lem1 ax6ev equtr eximii syl6com exlimiiv
    19.35i pm2.61i ) ABDZRAEZRAFCBDZRGZSHCUATTAISABCJTRAACDTRHAACKACBLMPNCBKO Q $.
$}
${
  spim.1 $e |- F/ x ps $.
  spim.2 $e |- ( x = y -> ( ph -> ps ) ) $.
  spim $p |- ( A. x ph -> ps ) $= ( weq wi ax6e eximii 19.36i ) ABCECDGABHCCDIFJK $.
$}
${
  cbv3.1 $e |- F/ y ph $.
  cbv3.2 $e |- F/ x ps $.
  cbv3.3 $e |- ( x = y -> ( ph -> ps ) ) $.
  cbv3 $p |- ( A. x ph -> A. y ps ) $= ( wal nfal spim alrimi ) ACHBDADCEIABCDFGJK $.
$}
${
  cbval.1 $e |- F/ y ph $.
  cbval.2 $e |- F/ x ps $.
  cbval.3 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbval $p |- ( A. x ph <-> A. y ps ) $= ( wal weq biimpd cbv3 wi biimprd equcoms impbii )
    ACHBDHABCDEFCDIZABGJKBA DCFEBALCDPABGMNKO $.
$}
${
  cbvex.cbval.1 $e |- F/ y ph $.
  cbvex.cbval.2 $e |- F/ x ps $.
  cbvex.cbval.3 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbvex $p |- ( E. x ph <-> E. y ps ) $= ( wn wal wex nfn weq notbid cbval notbii df-ex 3bitr4i )
    AHZCIZHBHZDIZHAC JBDJSUARTCDADEKBCFKCDLABGMNOACPBDPQ $.
$}
${
  $d y ph $.
  $d x ps $.
  cbvalv.1 $e |- ( x = y -> ( ph <-> ps ) ) $.
  cbvexv $p |- ( E. x ph <-> E. y ps ) $= ( nfv cbvex ) ABCDADFBCFEG $.
$}
equs4 $p |- ( A. x ( x = y -> ph ) -> E. x ( x = y /\ ph ) ) $= ( weq wi wal wex wa ax6e exintr
    mpi ) BCDZAEBFLBGLAHBGBCILABJK $.
${
  $d w x z $.
  $d w y $.
  axc9lem2 $p |- ( -. x = y -> ( E. x z = y -> z = y ) ) $= ( vw weq wn wex wi wal axc9lem1 equequ2
    biimprcd eximi sylib syl9 alrimdv 19.36v equsalvw syl6ib )
    ABEFZCBEZAGZDBEZCDEZHZDIUATUBUEDTUCUCAIZUBUDABDJ
    UBUEAGUFUDHUAUEAUCUDUADBCKZLMUCUDAQNOPUDUADBUGRS $.
$}
${
  $d x z $.
  nfeqf2 $p |- ( -. A. x x = y -> F/ x z = y ) $= ( weq wal wn wex wnf exnal nfnf1 axc9lem2 axc9lem1
    syld nf2 sylibr exlimi wi sylbir ) ABDZAEFSFZAGCBDZAHZSAITUBAUAAJTUAAGZUAAEZQUBTUCUAUDABCKABCLMU
    AANOPR $.
$}
${
  $d x z $.
  dveeq2 $p |- ( -. A. x x = y -> ( z = y -> A. x z = y ) ) $= ( weq wal wn nfeqf2 nfrd )
    ABDAEFCBDAABCGH $.
$}
${
  $d x z $.
  nfeqf1 $p |- ( -. A. x x = y -> F/ x y = z ) $= ( weq wal wn wnf nfeqf2 equcom nfbii sylib )
    ABDAEFCBDZAGBCDZAGABCHLMACBI JK $.
$}
${
  $d x z $.
  dveeq1 $p |- ( -. A. x x = y -> ( y = z -> A. x y = z ) ) $= ( weq wal wn nfeqf1 nfrd )
    ABDAEFBCDAABCGH $.
$}
${
  $d x w $.
  $d y w $.
  $d z w $.
  nfeqf $p |- ( ( -. A. z z = x /\ -. A. z z = y ) -> F/ z x = y ) $= ( vw weq wal wn wa nfna1 nfan
    wex equviniv dveeq1 imp equtr2 alanimi an4s syl2an ex exlimdv syl5 nfd )
    CAEZCFGZCBEZCFGZHZABEZCUDUFCUCCIUECIJUHADEZB
    DEZHZDKUGUHCFZABDLUGUKULDUGUKULUDUIUFUJULUDUIHUICFZUJCFZULUFUJHUDUIUMCADM
    NUFUJUNCBDMNUIUJUHCABDOPRQSTUAUB $.
$}
axc9 $p |- ( -. A. z z = x -> ( -. A. z z = y -> ( x = y -> A. z x = y ) ) ) $= ( weq wal wn wi wa
    nfeqf nfrd ex ) CADCEFZCBDCEFZABDZNCEGLMHNCABCIJK $.
ax13 $p |- ( -. x = y -> ( y = z -> A. x y = z ) ) $= ( weq wn wal wi sp con3i axc9 syl2im ax13b
    mpbir ) ABDZEZBCDZPAFZGZGOACDZEZ RGGONAFZETSAFZERUANNAHIUBSSAHIBCAJKQABCLM $.
${
  $d x z $.
  $d y z $.
  $d z ph $.
  ax12v2.1 $e |- ( x = z -> ( ph -> A. x ( x = z -> ph ) ) ) $.
  ax12v2 $p |- ( -. A. x x = y -> ( x = y -> ( ph -> A. x ( x = y -> ph ) ) ) ) $= ( weq wal wn wex
    wi ax6ev dveeq2 wb equequ2 sps nfa1 imbi1d albid imbi12d imbi2d mpbii syl6 exlimdv mpi )
    BCFZBGHZDCFZDIUEAUEAJZBGZJZJZDCKUFUGUKDUF
    UGUGBGZUKBCDLULBDFZAUMAJZBGZJZJUKEULUMUEUPUJUGUMUEMBDCBNOZULUOUIAULUNUHBU
    GBPULUMUEAUQQRTSUAUBUCUD $.
$}
${
  $d x z $.
  $d y z $.
  $d z ph $.
  ax12a2.1 $e |- ( x = z -> ( A. z ph -> A. x ( x = z -> ph ) ) ) $.
  ax12a2 $p |- ( -. A. x x = y -> ( x = y -> ( ph -> A. x ( x = y -> ph ) ) ) ) $= ( ax12v ax12v2 )
    ABCDABDFG $.
$}
${
  $d x z $.
  $d y z $.
  $d z ph $.
  axc15 $p |- ( -. A. x x = y -> ( x = y -> ( ph -> A. x ( x = y -> ph ) ) ) ) $= ( vz ax-12 ax12a2
    ) ABCDABDEF $.
$}
equs5 $p |- ( -. A. x x = y -> ( E. x ( x = y /\ ph ) <-> A. x ( x = y -> ph ) ) ) $= ( weq wal wn
    wa wex wi nfna1 nfa1 axc15 impd exlimd equs4 impbid1 ) BCDZBEF
    ZQAGZBHQAIZBEZRSUABQBJTBKRQAUAABCLMNABCOP $.
sb2 $p |- ( A. x ( x = y -> ph ) -> [ y / x ] ph ) $= ( weq wi wal wa wex wsb sp equs4 df-sb
    sylanbrc ) BCDZAEZBFONAGBHABCIOBJABC KABCLM $.
sb4 $p |- ( -. A. x x = y -> ( [ y / x ] ph -> A. x ( x = y -> ph ) ) ) $= ( wsb weq wa wex wal wn
    wi sb1 equs5 syl5ib ) ABCDBCEZAFBGNBHINAJBHABCKABCL M $.
hbsb2 $p |- ( -. A. x x = y -> ( [ y / x ] ph -> A. x [ y / x ] ph ) ) $= ( weq wal wn wsb wi sb4
    sb2 axc4i syl6 ) BCDZBEFABCGZMAHZBENBEABCIONBABCJKL $.
sbequi $p |- ( x = y -> ( [ x / z ] ph -> [ y / z ] ph ) ) $= ( weq wsb wi equtr sbequ2 sbequ1
    syl9 syld wn wal ax13 sp con3i sb4 equequ2 syl biimprd imim1d al2imi sb2 syl6 pm2.61i )
    DBEZBCEZADBFZADCFZGZGUGUHDCEZU
    KDBCHUGUIAULUJADBIADCJKLUGMZUHUHDNZUKDBCOUMUIUGAGZDNZUNUJUMUGDNZMUIUPGUQUGU
    GDPQADBRTUNUPULAGZDNUJUHUOURDUHULUGAUHUGULBCDSUAUBUCADCUDUEKLUF $.
sbequ $p |- ( x = y -> ( [ x / z ] ph <-> [ y / z ] ph ) ) $= ( weq wsb sbequi wi equcoms impbid )
    BCEADBFZADCFZABCDGLKHCBACBDGIJ $.
${
  $d x y $.
  hbs1 $p |- ( [ y / x ] ph -> A. x [ y / x ] ph ) $= ( weq wal wsb wi axc16 hbsb2 pm2.61i )
    BCDBEABCFZKBEGKBCHABCIJ $.
$}
${
  $d x y z $.
  ax-ext $a |- ( A. z ( z e. x <-> z e. y ) -> x = y ) $.
$}
cab $a class { x | ph } $.
df-clab $a |- ( x e. { y | ph } <-> [ x / y ] ph ) $.
abid $p |- ( x e. { x | ph } <-> ph ) $= ( cv cab wcel wsb df-clab sbid bitri )
    BCABDEABBFAABBGABHI $.
${
  $d x y $.
  hbab1 $p |- ( y e. { x | ph } -> A. x y e. { x | ph } ) $= ( cv cab wcel wsb df-clab hbs1 hbxfrbi
    ) CDABEFABCGBACBHABCIJ $.
$}
${
  $d x y $.
  nfsab1 $p |- F/ x y e. { x | ph } $= ( cv cab wcel hbab1 nfi ) CDABEFBABCGH $.
$}
${
  $d x A $.
  $d x B $.
  $d x y z $.
  df-cleq.1 $e |- ( A. x ( x e. y <-> x e. z ) -> y = z ) $.
  df-cleq $a |- ( A = B <-> A. x ( x e. A <-> x e. B ) ) $.
$}
${
  $d x A $.
  $d x B $.
  $d x y z $.
  dfcleq $p |- ( A = B <-> A. x ( x e. A <-> x e. B ) ) $= ( vy vz ax-ext df-cleq ) ADEBCDEAFG $.
$}
${
  $d x A $.
  $d x B $.
  df-clel $a |- ( A e. B <-> E. x ( x = A /\ x e. B ) ) $.
$}
${
  $d x A $.
  $d x B $.
  eqriv.1 $e |- ( x e. A <-> x e. B ) $.
  eqriv $p |- A = B $= ( wceq cv wcel wb dfcleq mpgbir ) BCEAFZBGKCGHAABCIDJ $.
$}
${
  $d x A $.
  $d x B $.
  $d x ph $.
  eqrdv.1 $e |- ( ph -> ( x e. A <-> x e. B ) ) $.
  eqrdv $p |- ( ph -> A = B ) $= ( cv wcel wb wal wceq alrimiv dfcleq sylibr )
    ABFZCGNDGHZBICDJAOBEKBCDLM $.
$}
${
  $d x A $.
  eqid $p |- A = A $= ( vx cv wcel biid eqriv ) BAABCADEF $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  $d x ph $.
  eqeq1d.1 $e |- ( ph -> A = B ) $.
  eqeq1d $p |- ( ph -> ( A = C <-> B = C ) ) $= ( vx cv wcel wb wal wceq dfcleq biimpi bibi1 alimi
    albi 4syl 3bitr4g ) AF GZBHZSDHZIZFJZSCHZUAIZFJZBDKCDKABCKZTUDIZFJZUBUEIZFJUCUFIEUGUIFBCLMUHUJFT
    UDUANOUBUEFPQFBDLFCDLR $.
$}
eqeq1 $p |- ( A = B -> ( A = C <-> B = C ) ) $= ( wceq id eqeq1d ) ABDZABCGEF $.
${
  eqcomd.1 $e |- ( ph -> A = B ) $.
  eqcomd $p |- ( ph -> B = A ) $= ( wceq eqid eqeq1d mpbii ) ABBECBEBFABCBDGH $.
$}
eqcom $p |- ( A = B <-> B = A ) $= ( wceq id eqcomd impbii ) ABCZBACZGABGDEHBAHDEF $.
${
  eqcomi.1 $e |- A = B $.
  eqcomi $p |- B = A $= ( wceq eqcom mpbi ) ABDBADCABEF $.
$}
${
  eqeq2d.1 $e |- ( ph -> A = B ) $.
  eqeq2d $p |- ( ph -> ( C = A <-> C = B ) ) $= ( wceq eqeq1d eqcom 3bitr4g )
    ABDFCDFDBFDCFABCDEGDBHDCHI $.
$}
eqeq2 $p |- ( A = B -> ( C = A <-> C = B ) ) $= ( wceq id eqeq2d ) ABDZABCGEF $.
${
  eqeq2i.1 $e |- A = B $.
  eqeq2i $p |- ( C = A <-> C = B ) $= ( wceq wb eqeq2 ax-mp ) ABECAECBEFDABCGH $.
$}
eqeq12 $p |- ( ( A = B /\ C = D ) -> ( A = C <-> B = D ) ) $= ( wceq eqeq1 eqeq2 sylan9bb )
    ABEACEBCECDEBDEABCFCDBGH $.
${
  eqeq12d.1 $e |- ( ph -> A = B ) $.
  eqeq12d.2 $e |- ( ph -> C = D ) $.
  eqeq12d $p |- ( ph -> ( A = C <-> B = D ) ) $= ( wceq wb eqeq12 syl2anc ) ABCHDEHBDHCEHIFGBCDEJK
    $.
$}
${
  eqtri.1 $e |- A = B $.
  eqtri.2 $e |- B = C $.
  eqtri $p |- A = C $= ( wceq eqeq2i mpbi ) ABFACFDBCAEGH $.
$}
${
  eqtr4i.1 $e |- A = B $.
  eqtr4i.2 $e |- C = B $.
  eqtr4i $p |- A = C $= ( eqcomi eqtri ) ABCDCBEFG $.
$}
${
  3eqtr4i.1 $e |- A = B $.
  3eqtr4i.2 $e |- C = A $.
  3eqtr4i.3 $e |- D = B $.
  3eqtr4i $p |- C = D $= ( eqtr4i ) CADFDBAGEHH $.
$}
${
  3eqtr4ri.3eqtr4i.1 $e |- A = B $.
  3eqtr4ri.3eqtr4i.2 $e |- C = A $.
  3eqtr4ri.3eqtr4i.3 $e |- D = B $.
  3eqtr4ri $p |- D = C $= ( eqtr4i ) DACDBAGEHFH $.
$}
${
  eqtrd.1 $e |- ( ph -> A = B ) $.
  eqtrd.2 $e |- ( ph -> B = C ) $.
  eqtrd $p |- ( ph -> A = C ) $= ( wceq eqeq2d mpbid ) ABCGBDGEACDBFHI $.
$}
${
  syl5eq.1 $e |- A = B $.
  syl5eq.2 $e |- ( ph -> B = C ) $.
  syl5eq $p |- ( ph -> A = C ) $= ( wceq a1i eqtrd ) ABCDBCGAEHFI $.
$}
${
  syl6eq.1 $e |- ( ph -> A = B ) $.
  syl6eq.2 $e |- B = C $.
  syl6eq $p |- ( ph -> A = C ) $= ( wceq a1i eqtrd ) ABCDECDGAFHI $.
$}
${
  syl6eqr.1 $e |- ( ph -> A = B ) $.
  syl6eqr.2 $e |- C = B $.
  syl6eqr $p |- ( ph -> A = C ) $= ( eqcomi syl6eq ) ABCDEDCFGH $.
$}
${
  3eqtr4g.1 $e |- ( ph -> A = B ) $.
  3eqtr4g.2 $e |- C = A $.
  3eqtr4g.3 $e |- D = B $.
  3eqtr4g $p |- ( ph -> C = D ) $= ( syl5eq syl6eqr ) ADCEADBCGFIHJ $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  $d x ph $.
  eleq1d.1 $e |- ( ph -> A = B ) $.
  eleq1d $p |- ( ph -> ( A e. C <-> B e. C ) ) $= ( vx cv wceq wcel wa wex eqeq2d anbi1d exbidv
    df-clel 3bitr4g ) AFGZBHZQD IZJZFKQCHZSJZFKBDICDIATUBFARUASABCQELMNFBDOFCDOP $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  $d x ph $.
  eleq2d.eleq1d.1 $e |- ( ph -> A = B ) $.
  eleq2d $p |- ( ph -> ( C e. A <-> C e. B ) ) $= ( vx cv wceq wa wex wb wal dfcleq sylib anbi2
    alexbii syl df-clel 3bitr4g wcel )
    AFGZDHZUABTZIZFJZUBUACTZIZFJZDBTDCTAUCUFKZFLZUEUHKABCHUJEFBCMNUIUD UGFUCUFUBOPQFDBRFDCRS $.
$}
eleq1 $p |- ( A = B -> ( A e. C <-> B e. C ) ) $= ( wceq id eleq1d ) ABDZABCGEF $.
eleq2 $p |- ( A = B -> ( C e. A <-> C e. B ) ) $= ( wceq id eleq2d ) ABDZABCGEF $.
${
  eleq1i.1 $e |- A = B $.
  eleq2i $p |- ( C e. A <-> C e. B ) $= ( wceq wcel wb eleq2 ax-mp ) ABECAFCBFGDABCHI $.
$}
${
  $d y A $.
  $d y B $.
  $d x y $.
  cleqh.1 $e |- ( y e. A -> A. x y e. A ) $.
  cleqh.2 $e |- ( y e. B -> A. x y e. B ) $.
  cleqh $p |- ( A = B <-> A. x ( x e. A <-> x e. B ) ) $= ( wceq cv wcel wal dfcleq nfv nfi nfbi weq
    eleq1 bibi12d cbvalv1 bitr4i wb )
    CDGBHZCIZUADIZTZBJAHZCIZUEDIZTZAJBCDKUHUDABUHBLUBUCAUBAEMUCAFMNABOUF UBUGUCUEUACPUEUADPQRS $.
$}
${
  $d x A y $.
  $d ph y $.
  abeq2 $p |- ( A = { x | ph } <-> A. x ( x e. A <-> ph ) ) $= ( vy cab wceq cv wcel wb wal ax-5
    hbab1 cleqh abid bibi2i albii bitri ) C ABEZFBGZCHZSRHZIZBJTAIZBJBDCRDGCHBKABDLMUBUCBUAATABNOPQ
    $.
$}
${
  abeq2d.1 $e |- ( ph -> A = { x | ps } ) $.
  abeq2d $p |- ( ph -> ( x e. A <-> ps ) ) $= ( cv wcel cab eleq2d abid syl6bb )
    ACFZDGLBCHZGBADMLEIBCJK $.
$}
${
  abeq2i.1 $e |- A = { x | ph } $.
  abeq2i $p |- ( x e. A <-> ph ) $= ( cv wcel wb wtru cab wceq a1i abeq2d trud )
    BECFAGHABCCABIJHDKLM $.
$}
${
  $d ph y $.
  $d ps y $.
  $d x y $.
  abbi $p |- ( A. x ( ph <-> ps ) <-> { x | ph } = { x | ps } ) $= ( vy cab wceq cv wcel wb wal
    hbab1 cleqh abid bibi12i albii bitr2i ) ACEZ
    BCEZFCGZQHZSRHZIZCJABIZCJCDQRACDKBCDKLUBUCCTAUABACMBCMNOP $.
$}
${
  $d x A $.
  abbi2i.1 $e |- ( x e. A <-> ph ) $.
  abbi2i $p |- A = { x | ph } $= ( cab wceq cv wcel wb abeq2 mpgbir ) CABEFBGCHAIBABCJDK $.
$}
${
  abbii.1 $e |- ( ph <-> ps ) $.
  abbii $p |- { x | ph } = { x | ps } $= ( wb cab wceq abbi mpgbi ) ABEACFBCFGCABCHDI $.
$}
${
  abbid.1 $e |- F/ x ph $.
  abbid.2 $e |- ( ph -> ( ps <-> ch ) ) $.
  abbid $p |- ( ph -> { x | ps } = { x | ch } ) $= ( wb wal cab wceq alrimi abbi sylib )
    ABCGZDHBDICDIJANDEFKBCDLM $.
$}
${
  $d x ph $.
  abbidv.1 $e |- ( ph -> ( ps <-> ch ) ) $.
  abbidv $p |- ( ph -> { x | ps } = { x | ch } ) $= ( nfv abbid ) ABCDADFEG $.
$}
${
  $d x A $.
  $d ph x $.
  abbi2dv.1 $e |- ( ph -> ( x e. A <-> ps ) ) $.
  abbi2dv $p |- ( ph -> A = { x | ps } ) $= ( cv wcel wb wal cab wceq alrimiv abeq2 sylibr )
    ACFDGBHZCIDBCJKAOCELBCDM N $.
$}
wnfc $a wff F/_ x A $.
${
  $d x y $.
  $d y A $.
  df-nfc $a |- ( F/_ x A <-> A. y F/ x y e. A ) $.
$}
${
  $d x y $.
  $d y A $.
  nfci.1 $e |- F/ x y e. A $.
  nfci $p |- F/_ x A $= ( wnfc cv wcel wnf df-nfc mpgbir ) ACEBFCGAHBABCIDJ $.
$}
${
  $d x y $.
  $d y A $.
  nfcr $p |- ( F/_ x A -> F/ x y e. A ) $= ( wnfc cv wcel wnf wal df-nfc sp sylbi )
    ACDBECFAGZBHLABCILBJK $.
$}
${
  $d x y A $.
  nfcv $p |- F/_ x A $= ( vy cv wcel nfv nfci ) ACBCDBEAFG $.
$}
${
  $d x A $.
  nfcvd $p |- ( ph -> F/_ x A ) $= ( wnfc nfcv a1i ) BCDABCEF $.
$}
${
  $d x y $.
  $d y ph $.
  nfab1 $p |- F/_ x { x | ph } $= ( vy cab nfsab1 nfci ) BCABDABCEF $.
$}
${
  $d x y $.
  $d y A $.
  nfeqd.1 $e |- ( ph -> F/_ x A ) $.
  nfcrd $p |- ( ph -> F/ x y e. A ) $= ( wnfc cv wcel wnf nfcr syl ) ABDFCGDHBIEBCDJK $.
$}
${
  $d x y $.
  $d y A $.
  $d y B $.
  $d y ph $.
  nfeqd.nfeqd.1 $e |- ( ph -> F/_ x A ) $.
  nfeqd.2 $e |- ( ph -> F/_ x B ) $.
  nfeqd $p |- ( ph -> F/ x A = B ) $= ( vy wceq cv wcel wb wal dfcleq nfv nfcrd nfbid nfald nfxfrd )
    CDHGIZCJZS DJZKZGLABGCDMAUBBGAGNATUABABGCEOABGDFOPQR $.
$}
${
  $d x y $.
  $d y A $.
  $d y B $.
  $d y ph $.
  nfeld.nfeqd.1 $e |- ( ph -> F/_ x A ) $.
  nfeld.nfeqd.2 $e |- ( ph -> F/_ x B ) $.
  nfeld $p |- ( ph -> F/ x A e. B ) $= ( vy wcel cv wceq wa wex df-clel nfv nfcvd nfeqd nfcrd nfand
    nfexd nfxfrd ) CDHGIZCJZUADHZKZGLABGCDMAUDBGAGNAUBUCBABUACABUAOEPABGDFQRST $.
$}
${
  nfnfc.1 $e |- F/_ x A $.
  nfeq.2 $e |- F/_ x B $.
  nfeq $p |- F/ x A = B $= ( wceq wnf wtru wnfc a1i nfeqd trud ) BCFAGHABCABIHDJACIHEJKL $.
$}
${
  nfel.nfnfc.1 $e |- F/_ x A $.
  nfel.nfeq.2 $e |- F/_ x B $.
  nfel $p |- F/ x A e. B $= ( wcel wnf wtru wnfc a1i nfeld trud ) BCFAGHABCABIHDJACIHEJKL $.
$}
${
  $d x B $.
  nfeq1.1 $e |- F/_ x A $.
  nfel1 $p |- F/ x A e. B $= ( nfcv nfel ) ABCDACEF $.
$}
${
  $d x A $.
  nfeq2.1 $e |- F/_ x B $.
  nfeq2 $p |- F/ x A = B $= ( nfcv nfeq ) ABCABEDF $.
$}
wral $a wff A. x e. A ph $.
wrex $a wff E. x e. A ph $.
crab $a class { x e. A | ph } $.
df-ral $a |- ( A. x e. A ph <-> A. x ( x e. A -> ph ) ) $.
df-rex $a |- ( E. x e. A ph <-> E. x ( x e. A /\ ph ) ) $.
${
  rgen.1 $e |- ( x e. A -> ph ) $.
  rgen $p |- A. x e. A ph $= ( wral cv wcel wi df-ral mpgbir ) ABCEBFCGAHBABCIDJ $.
$}
${
  hbralrimi.1 $e |- ( ph -> A. x ph ) $.
  hbralrimi.2 $e |- ( ph -> ( x e. A -> ps ) ) $.
  hbralrimi $p |- ( ph -> A. x e. A ps ) $= ( cv wcel wi wal wral alrimih df-ral sylibr )
    ACGDHBIZCJBCDKAOCEFLBCDMN $.
$}
${
  $d x ph $.
  r19.21v $p |- ( A. x e. A ( ph -> ps ) <-> ( ph -> A. x e. A ps ) ) $= ( cv wcel wi wal wral
    bi2.04 albii 19.21v bitri df-ral imbi2i 3bitr4i ) C
    EDFZABGZGZCHZAQBGZCHZGZRCDIABCDIZGTAUAGZCHUCSUECQABJKAUACLMRCDNUDUBABCDNO P $.
$}
${
  $d x ph $.
  ralrimiv.1 $e |- ( ph -> ( x e. A -> ps ) ) $.
  ralrimiv $p |- ( ph -> A. x e. A ps ) $= ( ax-5 hbralrimi ) ABCDACFEG $.
$}
${
  ralbii2.1 $e |- ( ( x e. A -> ph ) <-> ( x e. B -> ps ) ) $.
  ralbii2 $p |- ( A. x e. A ph <-> A. x e. B ps ) $= ( cv wcel wi wal wral albii df-ral 3bitr4i )
    CGZDHAIZCJOEHBIZCJACDKBCEKPQ CFLACDMBCEMN $.
$}
${
  ralbii.1 $e |- ( ph <-> ps ) $.
  ralbii $p |- ( A. x e. A ph <-> A. x e. A ps ) $= ( cv wcel imbi2i ralbii2 ) ABCDDABCFDGEHI $.
$}
ralnex $p |- ( A. x e. A -. ph <-> -. E. x e. A ph ) $= ( wn wral cv wcel wi wal wrex df-ral wa
    wex alinexa df-rex xchbinxr bitri ) ADZBCEBFCGZRHBIZABCJZDRBCKTSALBMUASABNABCOPQ $.
dfrex2 $p |- ( E. x e. A ph <-> -. A. x e. A -. ph ) $= ( wn wral wrex ralnex con2bii )
    ADBCEABCFABCGH $.
${
  $d x ps $.
  r19.23v $p |- ( A. x e. A ( ph -> ps ) <-> ( E. x e. A ph -> ps ) ) $= ( wi wral wn wrex con34b
    ralbii r19.21v dfrex2 imbi1i con1b bitr2i 3bitri )
    ABEZCDFBGZAGZEZCDFRSCDFZEZACDHZBEZQTCDABIJRSCDKUDUAGZBEUBUCUEBACDLMUABN OP $.
$}
${
  $d x ps $.
  rexlimiv.1 $e |- ( x e. A -> ( ph -> ps ) ) $.
  rexlimiv $p |- ( E. x e. A ph -> ps ) $= ( wi wral wrex rgen r19.23v mpbi )
    ABFZCDGACDHBFLCDEIABCDJK $.
$}
${
  raleq1f.1 $e |- F/_ x A $.
  raleq1f.2 $e |- F/_ x B $.
  rexeqf $p |- ( A = B -> ( E. x e. A ph <-> E. x e. B ph ) ) $= ( wceq cv wcel wa wex wrex nfeq
    eleq2 anbi1d exbid df-rex 3bitr4g ) CDGZB
    HZCIZAJZBKTDIZAJZBKABCLABDLSUBUDBBCDEFMSUAUCACDTNOPABCQABDQR $.
$}
${
  $d x A $.
  $d x B $.
  rexeq $p |- ( A = B -> ( E. x e. A ph <-> E. x e. B ph ) ) $= ( nfcv rexeqf ) ABCDBCEBDEF $.
$}
cvv $a class _V $.
df-v $a |- _V = { x | x = x } $.
vex $p |- x e. _V $= ( cv cvv wcel weq equid df-v abeq2i mpbir ) ABCDAAEZAFJACAGHI $.
${
  $d x A $.
  isset $p |- ( A e. _V <-> E. x x = A ) $= ( cvv wcel cv wceq wa wex df-clel vex biantru exbii
    bitr4i ) BCDAEZBFZNCD ZGZAHOAHABCIOQAPOAJKLM $.
$}
${
  $d A y $.
  $d x y $.
  issetf.1 $e |- F/_ x A $.
  issetf $p |- ( A e. _V <-> E. x x = A ) $= ( vy cvv wcel cv wceq wex isset nfeq2 nfv eqeq1 cbvex
    bitri ) BEFDGZBHZDI AGZBHZAIDBJQSDAAPBCKSDLPRBMNO $.
$}
eqvisset $p |- ( x = A -> A e. _V ) $= ( cv wceq cvv wcel vex eleq1 mpbii ) ACZBDJEFBEFAGJBEHI $.
${
  $d x A $.
  $d x B $.
  elex $p |- ( A e. B -> A e. _V ) $= ( vx cv wceq wcel wa wex cvv exsimpl df-clel isset 3imtr4i )
    CDZAEZNBFZGC HOCHABFAIFOPCJCABKCALM $.
$}
${
  vtoclgf.1 $e |- F/_ x A $.
  vtoclgf.2 $e |- F/ x ps $.
  vtoclgf.3 $e |- ( x = A -> ( ph <-> ps ) ) $.
  vtoclgf.4 $e |- ph $.
  vtoclgf $p |- ( A e. V -> ps ) $= ( wcel cvv elex cv wceq wex issetf mpbii exlimi sylbi syl )
    DEJDKJZBDELUA CMDNZCOBCDFPUBBCGUBABIHQRST $.
$}
${
  $d x A $.
  vtoclg1f.nf $e |- F/ x ps $.
  vtoclg1f.maj $e |- ( x = A -> ( ph <-> ps ) ) $.
  vtoclg1f.min $e |- ph $.
  vtoclg1f $p |- ( A e. V -> ps ) $= ( wcel cvv elex cv wceq wex isset mpbii exlimi sylbi syl )
    DEIDJIZBDEKTCL DMZCNBCDOUABCFUAABHGPQRS $.
$}
${
  $d x A $.
  $d x ps $.
  vtoclg.1 $e |- ( x = A -> ( ph <-> ps ) ) $.
  vtoclg.2 $e |- ph $.
  vtoclg $p |- ( A e. V -> ps ) $= ( nfv vtoclg1f ) ABCDEBCHFGI $.
$}
${
  $d x A $.
  $d x ch $.
  $d x th $.
  vtoclbg.1 $e |- ( x = A -> ( ph <-> ch ) ) $.
  vtoclbg.2 $e |- ( x = A -> ( ps <-> th ) ) $.
  vtoclbg.3 $e |- ( ph <-> ps ) $.
  vtoclbg $p |- ( A e. V -> ( ch <-> th ) ) $= ( wb cv wceq bibi12d vtoclg ) ABKCDKEFGELFMACBDHINJO
    $.
$}
${
  vtocl2gf.1 $e |- F/_ x A $.
  vtocl2gf.2 $e |- F/_ y A $.
  vtocl2gf.3 $e |- F/_ y B $.
  vtocl2gf.4 $e |- F/ x ps $.
  vtocl2gf.5 $e |- F/ y ch $.
  vtocl2gf.6 $e |- ( x = A -> ( ph <-> ps ) ) $.
  vtocl2gf.7 $e |- ( y = B -> ( ps <-> ch ) ) $.
  vtocl2gf.8 $e |- ph $.
  vtocl2gf $p |- ( ( A e. V /\ B e. W ) -> ch ) $= ( wcel cvv wi elex nfel1 nfim cv wceq imbi2d
    vtoclgf mpan9 ) FHRFSRZGIRCF HUAUIBTUICTEGILUICEEFSKUBNUCEUDGUEBCUIPUFABDFSJMOQUGUGUH $.
$}
${
  $d x A $.
  $d y A $.
  $d y B $.
  $d x ps $.
  $d y ch $.
  vtocl2g.1 $e |- ( x = A -> ( ph <-> ps ) ) $.
  vtocl2g.2 $e |- ( y = B -> ( ps <-> ch ) ) $.
  vtocl2g.3 $e |- ph $.
  vtocl2g $p |- ( ( A e. V /\ B e. W ) -> ch ) $= ( nfcv nfv vtocl2gf ) ABCDEFGHIDFMEFMEGMBDNCENJKLO
    $.
$}
${
  $d x y A $.
  $d y ph $.
  alexeqg $p |- ( A e. V -> ( A. x ( x = A -> ph ) <-> E. x ( x = A /\ ph ) ) ) $= ( vy wcel cv wceq
    wa wex wi wal eqeq2 anbi1d exbidv imbi1d albidv vtoclbg sb56 bicomd )
    CDFBGZCHZAIZBJZUBAKZBLZUAEGZHZAIZBJUHAKZBLUDUFECDUGCHZUIUCB
    UKUHUBAUGCUAMZNOUKUJUEBUKUHUBAULPQABESRT $.
$}
${
  $d x A $.
  ceqex $p |- ( x = A -> ( ph <-> E. x ( x = A /\ ph ) ) ) $= ( cv wceq wa wex 19.8a ex wi wal cvv
    wcel wb eqvisset alexeqg syl sylbird sp com12 impbid )
    BDCEZAUBAFZBGZUBAUDUCBHIUBUDUBAJZBKZAUBCLMUFUDNBCOABCLP QUFUBAUEBSTRUA $.
$}
${
  $d x A $.
  ceqsexg.1 $e |- F/ x ps $.
  ceqsexg.2 $e |- ( x = A -> ( ph <-> ps ) ) $.
  ceqsexg $p |- ( A e. V -> ( E. x ( x = A /\ ph ) <-> ps ) ) $= ( wb cv wceq wa wex nfe1 nfbi ceqex
    bibi12d biid vtoclg1f ) AAHCIDJZAKZCL ZBHCDEUABCTCMFNSAUAABACDOGPAQR $.
$}
${
  $d x A $.
  $d x ps $.
  ceqsexgv.1 $e |- ( x = A -> ( ph <-> ps ) ) $.
  ceqsexgv $p |- ( A e. V -> ( E. x ( x = A /\ ph ) <-> ps ) ) $= ( nfv ceqsexg ) ABCDEBCGFH $.
$}
${
  $d x A $.
  $d x B $.
  clel3g $p |- ( B e. V -> ( A e. B <-> E. x ( x = B /\ A e. x ) ) ) $= ( wcel cv wceq wa wex eleq2
    ceqsexgv bicomd ) CDEAFZCGBMEZHAIBCEZNOACDMCB JKL $.
$}
${
  $d x A $.
  $d x B $.
  clel3.1 $e |- B e. _V $.
  clel3 $p |- ( A e. B <-> E. x ( x = B /\ A e. x ) ) $= ( cvv wcel cv wceq wa wex wb clel3g ax-mp )
    CEFBCFAGZCHBNFIAJKDABCELM $.
$}
${
  elabgf.1 $e |- F/_ x A $.
  elabgf.2 $e |- F/ x ps $.
  elabgf.3 $e |- ( x = A -> ( ph <-> ps ) ) $.
  elabgf $p |- ( A e. B -> ( A e. { x | ph } <-> ps ) ) $= ( cv cab wcel wb nfab1 nfel nfbi wceq
    eleq1 bibi12d abid vtoclgf ) CIZACJ ZKZALDUBKZBLCDEFUDBCCDUBFACMNGOUADPUCUDABUADUBQHRACST $.
$}
${
  $d x ps $.
  $d x A $.
  elabg.1 $e |- ( x = A -> ( ph <-> ps ) ) $.
  elabg $p |- ( A e. V -> ( A e. { x | ph } <-> ps ) ) $= ( nfcv nfv elabgf ) ABCDECDGBCHFI $.
$}
${
  $d x ps $.
  $d x A $.
  elab2g.1 $e |- ( x = A -> ( ph <-> ps ) ) $.
  elab2g.2 $e |- B = { x | ph } $.
  elab2g $p |- ( A e. V -> ( A e. B <-> ps ) ) $= ( wcel cab eleq2i elabg syl5bb )
    DEIDACJZIDFIBENDHKABCDFGLM $.
$}
cun $a class ( A u. B ) $.
cin $a class ( A i^i B ) $.
wss $a wff A C_ B $.
${
  $d x A $.
  $d x B $.
  df-un $a |- ( A u. B ) = { x | ( x e. A \/ x e. B ) } $.
$}
${
  $d x A $.
  $d x B $.
  df-in $a |- ( A i^i B ) = { x | ( x e. A /\ x e. B ) } $.
$}
df-ss $a |- ( A C_ B <-> ( A i^i B ) = A ) $.
dfss $p |- ( A C_ B <-> A = ( A i^i B ) ) $= ( wss cin wceq df-ss eqcom bitri )
    ABCABDZAEAIEABFIAGH $.
${
  $d x A $.
  $d x B $.
  dfss2 $p |- ( A C_ B <-> A. x ( x e. A -> x e. B ) ) $= ( wss cv wcel wa wb wal wi cin wceq dfss
    df-in eqeq2i abeq2 3bitri pm4.71 cab albii bitr4i )
    BCDZAEZBFZUDUCCFZGZHZAIZUDUEJZAIUBBBCKZLBUFASZLUHBCMUJ UKBABCNOUFABPQUIUGAUDUERTUA $.
$}
${
  $d x A $.
  $d x B $.
  ssriv.1 $e |- ( x e. A -> x e. B ) $.
  ssriv $p |- A C_ B $= ( wss cv wcel wi dfss2 mpgbir ) BCEAFZBGKCGHAABCIDJ $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  elun $p |- ( A e. ( B u. C ) <-> ( A e. B \/ A e. C ) ) $= ( vx cun wcel cvv wo elex jaoi wceq
    eleq1 orbi12d df-un elab2g pm5.21nii cv )
    ABCEZFAGFZABFZACFZHZARITSUAABIACIJDQZBFZUCCFZHUBDARGUCAKUDTUEUAUCABL UCACLMDBCNOP $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  uneqri.1 $e |- ( ( x e. A \/ x e. B ) <-> x e. C ) $.
  uneqri $p |- ( A u. B ) = C $= ( cun cv wcel wo elun bitri eqriv ) ABCFZDAGZMHNBHNCHINDHNBCJEKL $.
$}
${
  $d x A $.
  $d x B $.
  uncom $p |- ( A u. B ) = ( B u. A ) $= ( vx cun cv wcel wo orcom elun bitr4i uneqri )
    CABBADZCEZAFZMBFZGONGMLFNO HMBAIJK $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  uneq1 $p |- ( A = B -> ( A u. C ) = ( B u. C ) ) $= ( vx wceq cun cv wcel wo eleq2 orbi1d elun
    3bitr4g eqrdv ) ABEZDACFZBCFZO DGZAHZRCHZIRBHZTIRPHRQHOSUATABRJKRACLRBCLMN $.
$}
uneq2 $p |- ( A = B -> ( C u. A ) = ( C u. B ) ) $= ( wceq cun uneq1 uncom 3eqtr4g )
    ABDACEBCECAECBEABCFCAGCBGH $.
${
  uneq1d.1 $e |- ( ph -> A = B ) $.
  uneq1d $p |- ( ph -> ( A u. C ) = ( B u. C ) ) $= ( wceq cun uneq1 syl ) ABCFBDGCDGFEBCDHI $.
$}
csn $a class { A } $.
${
  $d x A $.
  df-sn $a |- { A } = { x | x = A } $.
$}
cpr $a class { A , B } $.
df-pr $a |- { A , B } = ( { A } u. { B } ) $.
ctp $a class { A , B , C } $.
${
  $d x A $.
  $d x B $.
  sneq $p |- ( A = B -> { A } = { B } ) $= ( vx wceq cv cab csn eqeq2 abbidv df-sn 3eqtr4g )
    ABDZCEZADZCFMBDZCFAGBGL NOCABMHICAJCBJK $.
$}
${
  $d x A $.
  elsn $p |- ( x e. { A } <-> x = A ) $= ( cv wceq csn df-sn abeq2i ) ACBDABEABFG $.
$}
${
  $d x A $.
  $d x B $.
  dfpr2 $p |- { A , B } = { x | ( x = A \/ x = B ) } $= ( cpr csn cun cv wceq cab df-pr wcel elun
    elsn orbi12i bitri abbi2i eqtri wo )
    BCDBEZCEZFZAGZBHZUBCHZRZAIBCJUEAUAUBUAKUBSKZUBTKZRUEUBSTLUFUCUGUDABM ACMNOPQ $.
$}
${
  $d x A $.
  $d x B $.
  $d x C $.
  elprg $p |- ( A e. V -> ( A e. { B , C } <-> ( A = B \/ A = C ) ) ) $= ( vx cv wceq wo cpr eqeq1
    orbi12d dfpr2 elab2g ) EFZBGZNCGZHABGZACGZHEABC IDNAGOQPRNABJNACJKEBCLM $.
$}
${
  elpr.1 $e |- A e. _V $.
  elpr $p |- ( A e. { B , C } <-> ( A = B \/ A = C ) ) $= ( cvv wcel cpr wceq wo wb elprg ax-mp )
    AEFABCGFABHACHIJDABCEKL $.
$}
prcom $p |- { A , B } = { B , A } $= ( csn cun cpr uncom df-pr 3eqtr4i )
    ACZBCZDJIDABEBAEIJFABGBAGH $.
preq1 $p |- ( A = B -> { A , C } = { B , C } ) $= ( wceq csn cun cpr sneq uneq1d df-pr 3eqtr4g )
    ABDZAEZCEZFBEZNFACGBCGLMONAB HIACJBCJK $.
preq2 $p |- ( A = B -> { C , A } = { C , B } ) $= ( wceq cpr preq1 prcom 3eqtr4g )
    ABDACEBCECAECBEABCFCAGCBGH $.
cuni $a class U. A $.
${
  $d x y A $.
  df-uni $a |- U. A = { x | E. y ( x e. y /\ y e. A ) } $.
$}
${
  $d x y A $.
  dfuni2 $p |- U. A = { x | E. y e. A x e. y } $= ( cuni cv wcel wa wex cab wrex df-uni exancom
    df-rex bitr4i abbii eqtri ) CDAEBEZFZQCFZGBHZAIRBCJZAIABCKTUAATSRGBHUARSBLRBCMNOP $.
$}
${
  $d x y A $.
  $d x y B $.
  unieq $p |- ( A = B -> U. A = U. B ) $= ( vy vx wceq wel wrex cab cuni rexeq abbidv dfuni2 3eqtr4g
    ) ABEZCDFZDAGZ CHODBGZCHAIBINPQCODABJKCDALCDBLM $.
$}
${
  unieqd.1 $e |- ( ph -> A = B ) $.
  unieqd $p |- ( ph -> U. A = U. B ) $= ( wceq cuni unieq syl ) ABCEBFCFEDBCGH $.
$}
${
  $d x y A $.
  $d x y B $.
  unipr.1 $e |- A e. _V $.
  unipr.2 $e |- B e. _V $.
  unipr $p |- U. { A , B } = ( A u. B ) $= ( vx vy cv wcel wo cab cpr wa wex cun cuni wceq 19.43
    bitri clel3 exancom vex elpr anbi2i andi exbii orbi12i 3bitr4ri abbii df-un df-uni 3eqtr4ri )
    EGZAHZULBHZIZEJULFGZHZUPABKZHZLZFMZEJABNUROUOVAEUQUPAPZLZUQUPBPZLZIZFMVCF
    MZVEFMZIVAUOVCVEFQUTVFFUTUQVBVDIZLVFUSVIUQUPABFUAUBUCUQVBVDUDRUEUMVGUNVHU
    MVBUQLFMVGFULACSVBUQFTRUNVDUQLFMVHFULBDSVDUQFTRUFUGUHEABUIEFURUJUK $.
$}
${
  $d x y A $.
  $d y B $.
  uniprg $p |- ( ( A e. V /\ B e. W ) -> U. { A , B } = ( A u. B ) ) $= ( vx vy cv cpr cuni cun wceq
    preq1 unieqd uneq1 eqeq12d preq2 uneq2 unipr vex vtocl2g )
    EGZFGZHZIZUAUBJZKAUBHZIZAUBJZKABHZIZABJZKEFABCDUAAKZUDUGUEU
    HULUCUFUAAUBLMUAAUBNOUBBKZUGUJUHUKUMUFUIUBBAPMUBBAQOUAUBESFSRT $.
$}
