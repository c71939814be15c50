class OrbCalculator: pass
class FeNNolCalculator: pass
