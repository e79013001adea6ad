import CFuzzer
import Glibc

/// Runs one fuzz target under libFuzzer, or writes the seeds of a run.
///
/// ```console
/// $ fuzz targets
/// $ fuzz prepare manifest .build/fuzzing/work/manifest
/// $ fuzz manifest -max_total_time=60 .build/fuzzing/work/manifest/corpus
/// ```
@main
enum Fuzz {
    static func main() throws {
        let words = Array(CommandLine.arguments.dropFirst())
        if words == ["targets"] {
            for target in TargetName.allCases { print(target.rawValue) }
        } else if words.count == 3, words[0] == "prepare",
            let target = TargetName(rawValue: words[1])
        {
            try prepare(target.type, in: words[2])
        } else if let name = words.first, let target = TargetName(rawValue: name) {
            // libFuzzer receives the arguments without the name of the target.
            exit(drive(target, [CommandLine.arguments[0]] + words.dropFirst()))
        } else {
            print("usage: fuzz targets | fuzz prepare TARGET DIRECTORY | fuzz TARGET [ARGUMENT…]")
            exit(64)
        }
    }

    private static func drive(_ target: TargetName, _ words: [String]) -> CInt {
        var count = CInt(words.count)
        // libFuzzer keeps the arguments until the process ends.
        let list = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(
            capacity: words.count + 1
        )
        for (index, word) in words.enumerated() { unsafe list[index] = strdup(word) }
        unsafe list[words.count] = nil
        var arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? = unsafe list
        return unsafe LLVMFuzzerRunDriver(&count, &arguments, target.callback)
    }

    /// Writes the seeds into `corpus`, and the words into `words.dict`.
    private static func prepare(_ target: any FuzzTarget.Type, in directory: String) throws {
        for (index, seed) in try target.seeds().enumerated() {
            try write(seed, to: "\(directory)/corpus/built-\(index)")
        }
        let digits = Array("0123456789abcdef")
        let lines = target.words.map { word in
            "\""
                + word.map { "\\x\(digits[Int($0 >> 4)])\(digits[Int($0 & 15)])" }.joined()
                + "\"\n"
        }
        try write(Array(lines.joined().utf8), to: "\(directory)/words.dict")
    }

    private static func write(_ bytes: [UInt8], to path: String) throws {
        guard let file = unsafe fopen(path, "w") else { throw Unwritable(path: path) }
        let count = unsafe fwrite(bytes, 1, bytes.count, file)
        guard unsafe fclose(file) == 0, count == bytes.count else { throw Unwritable(path: path) }
    }

    private struct Unwritable: Error { var path: String }
}
