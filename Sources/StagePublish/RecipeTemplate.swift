/// A recipe to begin with.
public enum RecipeTemplate {
    /// The text of the recipe, which says of each member what it is for.
    public static let text = #"""
        // What goes into one asset pack: 'stagepack package' makes an archive of it. The format is
        // that of Apple's 'ba-package', whose recipes are read as they are.
        {
          // The name of the pack: letters, digits, '.', '-' and '_'.
          "assetPackID": "my-pack",

          // When the pack is fetched. One of:
          //   "essential"  staged before the first launch after the events
          //   "prefetch"   started at the events; may end later
          //   "onDemand"   when the application asks for it:  { "onDemand": {} }
          "downloadPolicy": {
            "essential": {
              "installationEventTypes": ["firstInstallation", "subsequentUpdate"]
            }
          },

          // What the pack holds. Paths are relative to the current directory, and are the same in the
          // pack unless there is a destination.
          "fileSelectors": [
            // A directory with everything below it.
            { "directory": "assets" }

            // One file.
            // , { "file": "credits.txt" }

            // Files by a pattern: '*' and '?' within a name, '[a-z]' for one character, '**' for any
            // number of directories.
            // , { "filePattern": "images/**/*.png" }

            // What has another place in the pack than here; '.' is the root of the pack.
            // , { "fileSource": "build/strings.json", "fileDestination": "strings.json" }
            // , { "directorySource": "../shared/music", "directoryDestination": "music" }

            // What is left out, whatever selected it: a path or a pattern.
            , { "fileExclusion": "**/.DS_Store" }
          ],

          // The platforms that the pack is for. Here for Apple's tools.
          "platforms": []

          // The language of the content.
          // , "language": "en"

          // What paths are relative to, instead of the current directory.
          // , "sourceRoot": "content"

          // Anything that the application wants to know: it is in the manifest.
          // , "userInfo": { "title": "My Pack" }
        }

        """#
}
