"""Tables of the formats that store indices of vectors: an entry has the sizes of 8 elements (IQ2) or of 4 (IQ3).

Written by `python -m tests.formats.grids > zinc_rt/formats/grids.py`; a test compares this file with the `gguf`
package, which the numbers are taken from. They come with this notice:

    MIT License. Copyright (c) 2023 Georgi Gerganov

    Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
    documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
    rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
    permit persons to whom the Software is furnished to do so, subject to the following conditions:

    The above copyright notice and this permission notice shall be included in all copies or substantial portions of
    the Software.

    THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
    WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS
    OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
    OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Packed(NamedTuple):
    """A table as text. entries, width: vectors and elements of one; values: the sizes that occur; text: base 85 of
    16-bit numbers, one for a vector, which hold the places of its elements in `values`, 16 / width bits each at most.
    """

    entries: int
    width: int
    values: tuple[int, ...]
    text: str

    def words(self) -> tuple[int, ...]:
        """The sizes as bytes, four in a word: width / 4 words for each entry."""
        bits = (len(self.values) - 1).bit_length()
        raw = base64.b85decode(self.text)
        codes = [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
        sizes = bytes(self.values[code >> bits * i & (1 << bits) - 1] for code in codes for i in range(self.width))
        return tuple(int.from_bytes(sizes[i : i + 4], "little") for i in range(0, len(sizes), 4))


@functools.cache
def words(name: str) -> tuple[int, ...]:
    """The table of a format, as `Packed.words`."""
    return PACKED[name].words()


PACKED: Final[Mapping[str, Packed]] = MappingProxyType(
    {
        "IQ2_XXS": Packed(
            256,
            8,
            (8, 25, 43),
            "000621po*D3IGuR6aXLqA^<1=DgZ$ML;z3#SO8%FWB`Bwf&hvDq5uH_1OX5M6#+m2gaMcV00II6A_9T}0R#jD5CkCvBm_VNLIg+z"
            "U<82#ganWTqyzv30tE;KAO%JRX$61<kp&3`5C%X7ga)Jr00;#L2nZAiC<s9aL<mp_QV56$1PMS10tyrg0T2Wb5D*~{KoDRMgb<Jr"
            "l@I_C2oWF=P!U=YfDt4TMG^oM2oxX`B@{^%fD{-NVif=u78U^*1Q-w)Kp24-02u`tpczpb03ZS&3Lr!vVIY7Yf*>g&NFe|s0wMt<"
            "1SAk7KqOWq03|^sWF?R$2q+*Zlqf_h0YC&m5I`6}AwVQRKtM=9RzP4tfk1>nkU#)IAVFb4fI)>p0YVT$NJ3UZXhHx)2t*)6fJB)@"
            "5=A6M07d~w1V|7_KuASM07+O$VM&5XMM{uL08j`}5l|UWAW(o%h)@JkLQ$kqky4OUl2i&+0ajF209X-N8CYakKv@V{1Yi(gKwxNK"
            "0AW>O7-C>z0AvMZ5M>f&gk?f#0DuC33V=a?f`9~p7=b{65rP4P1cVTT6@);9V1xjLMun7x35Gz1V1@#S1c?!f1dtGrB#=Omp^z4l"
            "fRRO#0F)w>M3hmLftVnf0-#W!g`f$c0HPSAP^bi{",
        ),
        "IQ2_XS": Packed(
            512,
            8,
            (8, 25, 43),
            "000621po*D3IGuR6aW?g82}&vA^;@-C;&kKL;ywrNdQm)QUFx|SO8%FWB`Bwf&hg8hyalQlmM9kpa1~@1OWyC2>}oR5&;zf7y%jq"
            "Aps--KmkGlMFB_wQ2|r|U;$_WfdPa8kO2S!0s;jB2m%oT6apXuK>|bqPy$r~fC7pF0R#jD1_TKN5Cjqg6$BUrAp|4@Km<YrMFdC$"
            "Q3O;3Rs>)KfdqsEkOTk)0tE#H2n7)Z6a^p!K?OtwPz7NHfCT{t1O^ZWCI&zTLI#8e00;sI1qcWT3J4Jh6bK*)B?v(XL<mp_SO|a!"
            "pa`l60SN>N5D7pDfeDET016-qC<>Mepb7yH1P}%g2@ntv5)c&-7!V;4BoIIlLJ&m|NDxsFR1jbgY7l`Cgb<Jr01*Na1rZ1l5fKy-"
            "AQ3?kL=jLCfDx1tmJtCG1QG@k5E4KVU=jcn0u%)l2ow<%6civ7K@>z3Nfb~NWE6lD0Tl!l5EVcb02UM$NfrSZ1Q-w)5*R=jR2YUB"
            "02u`tW*Jc$sTu$v0w4t-2p|d|5g-&GARs{?L?BQgfFPhC0U-n-5FtPzNFik*03sqHfFh_O0VD(@5F{xiKqLSqK_yZpnI!=x8YZSD"
            "04NA33Me2bRVaukq9|x7kSPc%AS!|?h$@OI0YC&m20#fw5I_<@6+jq3AwVQRKtMu3ML<YEN<dLSR6t-rWk7*Igg}r$06_vl1wjZw"
            "5kV9|AVEPvL_ttNfI)>pqCo*d1VRu(5<)3LKtcdS0z?Hw2t*M?6hs+BAVfh#L_|<TfJBr;0YwBw5Je<KKt-BG07eQ%L`G0X0Z0T$"
            "5J*5sMMzXgVn_f<5lKWzP)TV?1WEu<0#F4|2v8AF6i^^gC{RIAL{LyrfKUNZ1W^!C6;VJ@LQw!xL{h3!0aOH35L6*lKvZB<fmESX"
            "096Q8fK`Z9Ay#Nsp;iD`6j(u6P*|B*8d*SDLRp1c0bm4R5MV%HRA6FYhG3~+0AVCzN@9{?0Av<q5M@ARMP;OA0cdJyC20m~RBB>s"
            "0DuC31%L>E5r7ncAb=`>L4ZVnP=J7df`F)is(=B31c3&D5P?8}QGr>30D>TbfP#X8pn|A^0fYpE5QGwh6@);9V1$W;0EI+_rG*%V"
            "YK8!a2#6(!T8My%f{3Vy28kkyfQpEUmWrr~0gwcc5RgESR*-~{0Ffe*WRX^qiIM=61(ZaTP?T7dDV30wl9fT0QJAKfNtqRzV447+"
            "0-y+>3ZNjMDxjdCQK4C(rlA0$0-^|_Dx!d*prSyem84~+n5GJ-AgCg!D5#*QsHg;~gsFz9D5@%|k*cby",
        ),
        "IQ2_S": Packed(
            1024,
            8,
            (8, 25, 43),
            "000621po*D3IGuR6aW?g82}&vA^;@-C;&kKL;ywrNdQm)QUFx|SO8%FWB_IWX#ju#f&hg8hyalQlmMUrr2wh`0RaR71_22H5CIYa"
            "6#*ClAps--KmkGlMFB_wQ2|r|RsmT7U;$+TXaRu%gaMENk^z+gp#h`;00II61p){H5dstfAOb1^K>|bqMgmC!Py$r~fC7aAiUO1Z"
            "q5=T~1Ox^I2?P)X5(E_l7z7~%Bm^b|DFi?SLIgzwNCZj*Q3O;3Rs>lDU<6_WWdwl)gan2Ji3E@Yl?0dsp#-D^00jaC1qBEN3I!1b"
            "6a^Lq83iB(B?Tx2K?OtwMg>U)Pz6#2RRvfDVFhFbfCYjDg$0NOkp+|mpalU21O^5M2?h`b6$U^CMFvO)Q3g~7U<QE(ga(iX00;sI"
            "1qcWT5eO6r76=&#AP6N0DhNRcL<mL*NeEB~QV3NDSO{SVWC(x=g$R@gst5rI1PKrc5(yOv7zrT>KnX<&NC{C1R0&`SfeDZa016Qb"
            "6bd2=C<-bHPzsp}0T2Wb1`r7l5D*d&6%ZH@ArK@GCJ;anLJ&m|NDxsFR1j7WSrA|lVi08zXb^!Agb;=hkPwv+m=K{5q!0iR0ucof"
            "2oVYq5fKy-77-Z{AQ2)FB@rkQK@mg|MiEI7P!UoQRS{SbVG(2zfDwWbg%OAmkr9*;0TKif2@((z6%rv5BoaUpMG{dGR1$#_gc6Vv"
            "02Bfg1r!Jr5fl^@78Ds2AQUAOC=@{yL=;98Nfb~NQWRAbSQKFtWE6lDf)s@mh!l|&loX&80Tl!l1{Dbv5ET*?6%`m2Ar&MQKovq2"
            "MHNUDQ594bU=@KCgcXn#02T!n2o@0*6c!*BK^8<7P!@m|sulql1Q-Sw2^bI<6&M&8As9dyLKsCDNElHVR2X0wff$4s02u-q1sMn#"
            "5g8O2AQ?d!L>W*SX&Is!1R4+;KpIvW03ZS&1t16@5g-&G79bfQARr|mDj-21L?BQgQXo|zWFUYbiXfCAsvrR&1R)S15+M~KAt68^"
            "LLo&VQ6W?zU?G7agdvb203r$^A|favDk4N8P$GyTiXx~Y0VD(@1|$h25F`~O7$hMiBqTs2LL@~bNF-4tR3u;|fh2?^kR$*l1tkb2"
            "5hWBQASFR1L?uuqW+i|n0VV_{5GFt-StbA|1t<|H6evL`L?}=wiYTfm0VxD25Gj=@3MwKhWGaX%iYfs>1V9Er2|y4)5<nF|7(g08"
            "AwVQRCO|+yLO?}8NI*(JQ9x8cRzO)mU_fF(Wk7*Igg}r$l|Yz4p+KZS06_vl1wjZw5kV9|7C{+7AVDHQB|$+!L_tPDNkLFSQbAQg"
            "SV3VyWI=#If<c8rh(VD-ltG|D0YU^q5JD0{6+#$7Btk$!MM6kIQ9@KgU_yaHghBvB0z?Hw2t*1*5kwS37DO3DAVeZWB}6DhK}1AE"
            "Mnp+OP()HhRYX`sVMJs^fJA~sg+z!%kwlb4phN*h1Vsi#2}KY^5=9k77)2pPBt<|)LPbSINJUXaR7GG#YDIxXghh}=07e2v1x5%)"
            "5k?e7AVxt(L`G0XfJUW80Z0T$2}lq~5=a$D7)T*VBuGF=LP$kONJvpgR7hY*gh-G`07(K#1xW}=5lIwDAW1<<L`hIdfJv4~0ZIf)"
            "5K2Hw08j!@1yBf35l|FR7El>bAW$MuB~U0(K~O|cMo>vmP*74(RZv(^VNhgHfKY-^g;0o4kx-OS0Z{}|22lx75K$6Q6;T*bAyFhz"
            "Kv6<bMNvpmQBhP;U{Qflgi(-D08#}~2vQMJ6jC5kK~h9gP*Q19fKmZe1XKo82~-eN5>ypb7*rutBve3DLR3XmNK{c&R8(M8fmDQ4"
            "kW>Iw0#yZ72vreP6jdNqK~+RmP*s3c0agT75LPBuKvn=)0$2rD2v`wV6j&fwL0CjsP*_@6fLH-p1X&PSKv@7<8Cr!}s9FJF1YibW"
            "5MUBu6<`=(Az&n6Kww2+NMKQ5RA69WgkX?h0AT`Q1z`wb5n&WzAYnmaL}5^2fMJ<o1Y!_kKw?&6p<)1J1!M?h5o8o(AY?&gL}XB8"
            "fMfw>1Z5CqKxIm0Xl0UR0A`eC0cZqh5NKs+m}mfLDrrJ$p=tnt0)Pd82!IiQ6o46kAb=%+L4ZVnP=Hc^Re)H4VSs>ug@BQOlz;(&"
            "1c3>G5P=eb6@eImA%P@;K!HMmMS)0xQGrx}fq{g9kb$Xz0D=XA3W5=W6oNs5M1oL)0fYpE280QO5QGwh6@(asA%sALLWD(xNQ6;@"
            "RD@uJfrNyFkc0q*0)+*I2!#=a6onv#L4`zxP=$bniiH7&1cnfXDTY9X0Eh*M5r`CsL5M_%P>7<40f_{OK#66EB8pgwT8e^-qKW~K"
            "1ds`k5Rej(6_6N^B#=OmLXbs}NRUyGRFGhhfslldkdOe81(6Yv6p=xZM3GRDT9E;g1d<SvK$51C0F(lh1(XPs5tI~^Ae2FrM3hjJ"
            "fRvV$0hI)m5S2icn3bWG0G39UWR?M#1eg$*CYV5&sh9wnNtsfakeUFX1)vI`6rduYDxg82M4(WhqM)jvK%r%!0-_3{BBCgwDx!j-"
            "h@y(3sG<R+1f&q8K%|MJq@)0)8KqIC3aBWkqNr4<hN%du3aTKgBC05=h^nfp",
        ),
        "IQ3_XXS": Packed(
            256,
            4,
            (4, 12, 20, 28, 36, 44, 52, 62),
            "000621ON#D3jhxQ5C9SY82};xI{-ZZK>$MlNB~LzQ2<o{SO8i8VE}9ZcmRL^f&hd7i2#rQk^q?in*g5xsQ|A4y#T=g#{kFx$^g{>"
            "_y7w59|0r*F9ACNJpn-hM*&&^Y5|=Av;oKg%mK~;;{ovj0RjU82m%TM5dsqe7y=ps90Df-C;~tNLIOzwPy$i{fdYd9hyscNkph?k"
            "x&pug!UE6&*#hPQ_5uL|1p_DpPy<v0W&?Qxg#*$9-~#{z0t5*J3j`1Z5(E|m83ZB(K?FktMFdC$N(4~^SOjwfcLaC@fCPdBi3E=X"
            "kOYzhp9G);tpvdY$OOy;_yqg}9R(`|Lj_j_VFi2z!3Dzw&IRQK0R{*L3I-7d69y;-H3m8cKn6kvPzG5BWCmsifd+#Hhz6Agss_3S"
            "$p+g77zZZ@ItM@pMh8*{Z3m18o(HoB+XwIm1PBiZ9S9!?D+n(Ld<c*Tp9r7`un4vY#|Y&J1PLh#GznD+V+nW(#R<p>$_dyB3JM_#"
            "I0`@tMhaF6Z3>JEnhLrK!V2pO2n!Pn7YjNILJL_7s0-8!;tLcEBn&1DGz?J;aSV?Pv<%n`-V7uSMGa~Vn+?Ma(G3F*1r7%e2o4$!"
            "Dh^f-U=E57r4FhNzz)q0+Yay!5f32`Ko3F>R1cUB",
        ),
        "IQ3_S": Packed(
            512,
            4,
            (1, 3, 5, 7, 9, 11, 13, 15),
            "000310ssX72LK2F2>=QJ3;+%Q5C9PX6#yFmAOIo&B>*P?DF7<~FaR<DIRHEWKL9`gK>$JkL;y$tNdQd%PykZ^R{&W6T>xYNaR7Ay"
            "dH{d`fdGX7hX9BGivW%QkpPtdm;jsrq5!1;rvRw{s{ptFy8y!g$pFm&&;Zf^*#O%B-T>qP=m6>f_W=0-{Qv*~3jq%S5djnd8UY{y"
            "BLOJ^H~~TdL;+9%QUO*0TLEDKWdUaab^&_<h5?BIivgJdssXtHzyZPm!~xI&(gD^1+X3hS>;V7*0RjR71Of;G2?7fO4FV4W5CRec"
            "83G&v9s(=^E&?$EIs!lfK>|YpMgm9zOaf5?SOQxDVFG9ZY65ryegc33iUN%Sj{=YalmeOppaP=;tpczDx&pxh!~(|x$O6j((E`^3"
            "*aF-F;R5mk_yPk11p^8L3<DVh8v`N(CIct~ECWFUNCQg)Q3F^5S_5eVkOPzhmjk2&rUStP!vn|z$^+2@-2>qR@&ot-00aR90|W&G"
            "2LuQN3Iq%U4g?Vd69g9o7z7#wAp|1?B?Kr0Dg-wKI0QQcJp@1mLIg+zO9W2@QUp~5Sp-}JVgzXffdqsEhXj!XlLVLqp9G-<s|2qE"
            "xdglfzy!hs#RSO&(gf55*#z4J;sodf_5=Y12L%uX69pOt9R(o;It4uiL<LC&QUzZHU<GRhcm;q3f(3^Kkp-;<u?58i$pzL0*ahPS"
            "=mi1>2?h%W4F(Se5(XIt8wMQ)A_gP|Ck817GX^;ZK?XwxMFva;Q3g{6U<PmodIo+5fCh>NkOrCtoCc@{!3M|%%m&d0(+1ZD*aqPS"
            ";|Avj?FRb>0|yBQ4hIqk83!r{Fb6aTK?g_&N(WU3S_fnYZU=h@jt8L!!3V<!&<D~7-3I^&1PBTU5C{|q7YG^%AqXf4I0!-rM+iv>"
            "O9)a3SO{GRV+d&oZ3uw~g9wNSjR=tln+Tu?uL!aTxCq1u$q35`&<N59*$CYT00{yK6bT;*APG4MMF~d<Q3-MhiwT?wunEWs%?a2E"
            ";|b{r0tyHU3<?qoAPOW3CkiSGHVQlnK?*|(MG8s^Q3_fLdJ2FFi3*bnm<pZ>s|vyj#|p>_*9znc=?e7<`w9UI1Pc%g8Ve>1N()vC"
            "X$xx$q6@+c#0%032@DGi4Gb9!8w@ZEKnzd}R}6FviVU0#q71DJvJAKkzzoa`(G1`W6%8W|G7UftLk(OFa1DhGpbg0l%MAby1P%ud"
            "5DpR!9u6Q5EDkabLJmm|R1RYfWe$N3gbs)fjt-Fym=389!VcOF-45#x0S^Ta3l9(vC=XH(Vh@53nGe7Z",
        ),
    }
)
