-- The same filter by the defaults.
Register Stream S (A integer, B integer, C integer);

Select * From S Where S.A > 10 and S.B < 20 and S.C > 40
