-- A filter, written in full.
Register Stream S (A integer, B integer, C integer);

Select Istream(*) From S [Rows Unbounded] Where S.A > 10 and S.B < 20 and S.C > 40
