extension String {
    /// The text with control characters written as Swift does, `\u{1B}`, so that names and addresses of
    /// others neither begin a line of a log nor command a terminal; those in `allowed` stay.
    public func escapingControls(except allowed: Set<Unicode.Scalar> = []) -> String {
        func isControl(_ scalar: Unicode.Scalar) -> Bool {
            // Line and paragraph separators begin lines as well.
            let isSeparator = scalar.value == 0x2028 || scalar.value == 0x2029
            return (isSeparator || scalar.properties.generalCategory == .control)
                && !allowed.contains(scalar)
        }
        guard unicodeScalars.contains(where: isControl) else { return self }
        var text = ""
        for scalar in unicodeScalars {
            if isControl(scalar) {
                text += "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
            } else {
                text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
